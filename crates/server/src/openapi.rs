//! Routes with their documentation: one statement adds a route to the router and to the OpenAPI document. Schemas come
//! from the types that parse and serialize the bodies, errors from [`ErrorCode`], and path parameters from the path.

#![expect(clippy::indexing_slicing, reason = "on JSON objects, which these values are, it inserts what is missing")]

mod conventions;

pub(crate) use conventions::{date, thread_name};

use crate::app::App;
use crate::error_format::ErrorFormat;
use axum::Router;
use axum::handler::Handler;
use axum::http::StatusCode;
use axum::routing::{MethodRouter, delete, get, post};
use model::error::ErrorCode;
use model::{ApprovalKey, TaskId, ThreadId};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde_json::{Value, json};

const DESCRIPTION: &str = "Everything that happens in a thread is one durable log without gaps. A client reads it live, \
    disconnects, and resumes where it left off.\n\nErrors are `application/problem+json` with a stable `code`, except \
    on routes of other vendors' protocols. Every response has an `X-Request-Id`. A method that a route does not have \
    gives 405 `method_not_allowed`, an unknown path 404 `not_found`. Unknown query parameters and unknown fields of a \
    body are errors (422); responses may gain fields and event types at any time.";
const KEY_DESCRIPTION: &str = "`Authorization: Bearer hw_…` or `x-api-key: hw_…`, created by `headwater keys create`. \
    Required if the server runs with `[auth] mode = \"keys\"`; otherwise every caller is the user `local`. In both \
    modes the token of a share (`hws_…`) gives read access to the shared thread.";
const STREAM_DESCRIPTION: &str = "Server-sent events. Each frame has an `id` (the cursor to resume after), an `event` \
    (the type) and `data` (one line of JSON, see `x-data`). Comments keep the connection alive.";

/// The routes, added group by group.
pub(crate) struct Api {
    /// Routes that need a key, if the server has keys.
    pub(crate) keyed: Router<App>,
    pub(crate) public: Router<App>,
    paths: Value,
    tags: Vec<Value>,
    /// Types differ by direction: what a client may leave out is always in a response.
    requests: SchemaGenerator,
    responses: SchemaGenerator,
}

/// The documentation of the route that was added last.
pub(crate) struct Operation<'a> {
    value: &'a mut Value,
    requests: &'a mut SchemaGenerator,
    responses: &'a mut SchemaGenerator,
    error_format: ErrorFormat,
}

impl Api {
    pub(crate) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        Self {
            keyed: Router::new(),
            public: Router::new(),
            paths: Value::Null,
            tags: Vec::new(),
            requests: settings.clone().for_deserialize().into_generator(),
            responses: settings.for_serialize().with_transform(forbid_null_members).into_generator(),
        }
    }

    /// The document as text, with members in alphabetical order.
    pub(crate) fn into_document(mut self) -> String {
        let mut schemas = self.requests.take_definitions(true);
        schemas.extend(self.responses.take_definitions(true));
        let document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Headwater",
                "version": env!("CARGO_PKG_VERSION"),
                "summary": "A stateful streaming server for AI agents.",
                "description": DESCRIPTION,
                "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            },
            "servers": [{ "url": "http://127.0.0.1:8787", "description": "The default of `headwater serve`." }],
            "security": [{ "key": [] }, {}],
            "tags": self.tags,
            "paths": self.paths,
            "components": {
                "securitySchemes": { "key": { "type": "http", "scheme": "bearer", "description": KEY_DESCRIPTION } },
                "schemas": schemas,
            },
        });
        format!("{document:#}\n")
    }

    /// Names that mean one schema in requests and another one in responses.
    #[cfg(test)]
    pub(crate) fn conflicting_schemas(mut self) -> Vec<String> {
        let responses = self.responses.take_definitions(true);
        let requests = self.requests.take_definitions(true).into_iter();
        let conflicting = requests.filter(|(name, schema)| responses.get(name).is_some_and(|known| known != schema));
        conflicting.map(|(name, _)| name).collect()
    }

    /// Starts a group, which the routes that follow belong to.
    pub(crate) fn group(&mut self, name: &str, description: &str) {
        self.tags.push(json!({ "name": name, "description": description }));
    }

    pub(crate) fn get<T: 'static>(
        &mut self,
        path: &str,
        handler: impl Handler<T, App>,
        id: &str,
        summary: &str,
    ) -> Operation<'_> {
        self.keyed(path, "get", get(handler), id, summary)
    }

    pub(crate) fn post<T: 'static>(
        &mut self,
        path: &str,
        handler: impl Handler<T, App>,
        id: &str,
        summary: &str,
    ) -> Operation<'_> {
        self.keyed(path, "post", post(handler), id, summary).errors(&[ErrorCode::ShareReadOnly])
    }

    pub(crate) fn delete<T: 'static>(
        &mut self,
        path: &str,
        handler: impl Handler<T, App>,
        id: &str,
        summary: &str,
    ) -> Operation<'_> {
        self.keyed(path, "delete", delete(handler), id, summary).errors(&[ErrorCode::ShareReadOnly])
    }

    /// A route without a key.
    pub(crate) fn public_get<T: 'static>(
        &mut self,
        path: &str,
        handler: impl Handler<T, App>,
        id: &str,
        summary: &str,
    ) -> Operation<'_> {
        self.public = std::mem::take(&mut self.public).route(path, get(handler));
        let operation = self.operation(path, "get", id, summary);
        operation.value["security"] = json!([]);
        operation
    }

    fn keyed(
        &mut self,
        path: &str,
        method: &str,
        handler: MethodRouter<App>,
        id: &str,
        summary: &str,
    ) -> Operation<'_> {
        self.keyed = std::mem::take(&mut self.keyed).route(path, handler);
        let operation = self.operation(path, method, id, summary).errors(&[
            ErrorCode::Unauthorized,
            ErrorCode::InvalidApiKey,
            ErrorCode::RevokedApiKey,
            ErrorCode::StorageCorrupt,
            ErrorCode::Internal,
            ErrorCode::StorageUnavailable,
            ErrorCode::Stopping,
            ErrorCode::ServerBusy,
            ErrorCode::TooManyRequests,
        ]);
        match operation.error_format {
            ErrorFormat::Native => operation.errors(&[ErrorCode::InvalidQuery]),
            ErrorFormat::OpenAi | ErrorFormat::Anthropic | ErrorFormat::UiStream | ErrorFormat::AgUi => operation,
        }
    }

    fn operation(&mut self, path: &str, method: &str, id: &str, summary: &str) -> Operation<'_> {
        let tag = self.tags.last().map(|tag| &tag["name"]);
        let value = &mut self.paths[documented_path(path)][method];
        *value = json!({ "operationId": id, "summary": summary, "tags": [tag], "parameters": [], "responses": {} });
        let error_format = ErrorFormat::for_path(path);
        let operation = Operation { value, requests: &mut self.requests, responses: &mut self.responses, error_format };
        let mut operation = operation.errors(&[ErrorCode::OriginNotAllowed, ErrorCode::HostNotAllowed]);
        for name in path.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
            let schema = match name {
                "task" => operation.requests.subschema_for::<TaskId>(),
                "thread" => operation.requests.subschema_for::<ThreadId>(),
                "key" => operation.requests.subschema_for::<ApprovalKey>(),
                _ => operation.requests.subschema_for::<String>(),
            };
            let name = documented_path(&format!("{{{name}}}"));
            let parameter = Parameter { location: "path", name: name.trim_matches(['{', '}']), description: "" };
            operation = operation.parameter(parameter, json!(schema)).errors(&[ErrorCode::NotFound]);
        }
        operation
    }
}

/// Code generators name arguments after these; metrics have the shorter names of the router.
fn documented_path(path: &str) -> String {
    path.replace("{*", "{").replace("{task}", "{task_id}").replace("{thread}", "{thread_id}")
}

/// A member that a response may omit is never null.
fn forbid_null_members(schema: &mut Schema) {
    transform_subschemas(&mut forbid_null_members, schema);
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required = |name: &str| required.as_array().is_some_and(|names| names.iter().any(|known| known == name));
    let Some(members) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (_, member) in members.iter_mut().filter(|(name, _)| !is_required(name)) {
        let Some(member) = member.as_object_mut() else { continue };
        if let Some([kind, null]) = member.get("type").and_then(Value::as_array).map(Vec::as_slice)
            && null == "null"
        {
            let kind = kind.clone();
            member.insert("type".to_owned(), kind);
        }
        if let Some(Value::Array(alternatives)) = member.get_mut("anyOf") {
            alternatives.retain(|alternative| alternative["type"] != "null");
        }
    }
}

#[derive(Clone, Copy)]
struct Parameter<'a> {
    location: &'static str,
    name: &'a str,
    description: &'a str,
}

impl Operation<'_> {
    pub(crate) fn description(self, text: &str) -> Self {
        self.value["description"] = json!(text);
        self
    }

    fn parameter(self, parameter: Parameter<'_>, schema: Value) -> Self {
        let Parameter { location, name, description } = parameter;
        let required = location == "path";
        if let Some(parameters) = self.value["parameters"].as_array_mut() {
            parameters.retain(|known| known["name"] != name);
            let mut parameter = json!({ "name": name, "in": location, "required": required });
            parameter["schema"] = schema;
            if !description.is_empty() {
                parameter["description"] = json!(description);
            }
            parameters.push(parameter);
        }
        self
    }

    /// Replaces the description and the schema of a parameter of the path.
    pub(crate) fn path_param(self, name: &str, description: &str, schema: Value) -> Self {
        self.parameter(Parameter { location: "path", name, description }, schema)
    }

    pub(crate) fn query(self, name: &str, description: &str, schema: Value) -> Self {
        self.parameter(Parameter { location: "query", name, description }, schema)
    }

    pub(crate) fn required_query(self, name: &str, description: &str) -> Self {
        let operation = self.query(name, description, json!({ "type": "string" }));
        if let Some(parameter) = operation.value["parameters"].as_array_mut().and_then(|all| all.last_mut()) {
            parameter["required"] = json!(true);
        }
        operation
    }

    pub(crate) fn header(self, name: &str, description: &str) -> Self {
        self.parameter(Parameter { location: "header", name, description }, json!({ "type": "string" }))
    }

    /// A body that is required.
    pub(crate) fn body<T: JsonSchema>(self) -> Self {
        let schema = self.requests.subschema_for::<T>();
        let content = json!({ "application/json": { "schema": schema } });
        self.value["requestBody"] = json!({ "required": true, "content": content });
        self.errors(&[
            ErrorCode::InvalidJson,
            ErrorCode::InvalidFraming,
            ErrorCode::BodyTimeout,
            ErrorCode::BodyTooLarge,
            ErrorCode::UnsupportedMediaType,
            ErrorCode::UnsupportedEncoding,
            ErrorCode::InvalidBody,
            ErrorCode::NulCharacter,
            ErrorCode::TooManyUploads,
        ])
    }

    pub(crate) fn optional_body<T: JsonSchema>(self) -> Self {
        let operation = self.body::<T>();
        operation.value["requestBody"]["required"] = json!(false);
        operation
    }

    /// A file as the body, or in a form.
    pub(crate) fn upload(self) -> Self {
        let file = json!({ "type": "string", "format": "binary" });
        let form = json!({ "type": "object", "required": ["file"], "properties": { "file": file } });
        let content = json!({ "*/*": { "schema": file }, "multipart/form-data": { "schema": form } });
        self.value["requestBody"] = json!({ "required": true, "content": content });
        self
    }

    pub(crate) fn json<T: JsonSchema>(self, status: u16, description: &str) -> Self {
        let schema = self.responses.subschema_for::<T>();
        self.respond(status, description, "application/json", &json!(schema))
    }

    /// Server-sent events with this `data`, if the request asks for them.
    pub(crate) fn events<T: JsonSchema>(self, description: &str) -> Self {
        let data = self.responses.subschema_for::<T>();
        let schema = json!({ "type": "string", "description": STREAM_DESCRIPTION, "x-data": data });
        self.respond(200, description, "text/event-stream", &schema).errors(&[ErrorCode::TooManyStreams])
    }

    pub(crate) fn text(self, description: &str) -> Self {
        self.respond(200, description, "text/plain", &json!({ "type": "string" }))
    }

    /// A file, or the range of it that the request asks for.
    pub(crate) fn file(self, description: &str) -> Self {
        let bytes = json!({ "type": "string", "format": "binary" });
        self.header("Range", "One range of bytes, such as `bytes=0-1023`.")
            .respond(200, description, "*/*", &bytes)
            .respond(206, "The requested range.", "*/*", &bytes)
            .errors(&[ErrorCode::RangeNotSatisfiable])
    }

    pub(crate) fn empty(self, status: u16, description: &str) -> Self {
        self.value["responses"][status.to_string()] = json!({ "description": description });
        self
    }

    fn respond(self, status: u16, description: &str, media_type: &str, schema: &Value) -> Self {
        let response = &mut self.value["responses"][status.to_string()];
        if !description.is_empty() {
            response["description"] = json!(description);
        }
        response["content"][media_type] = json!({ "schema": schema });
        self
    }

    pub(crate) fn response_header(self, status: u16, name: &str) -> Self {
        self.value["responses"][status.to_string()]["headers"][name] = json!({ "schema": { "type": "string" } });
        self
    }

    /// Errors that the route may answer with, besides those that follow from the rest of its documentation.
    pub(crate) fn errors(self, codes: &[ErrorCode]) -> Self {
        let schema = self.error_format.schema(self.responses);
        for code in codes {
            let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let response_status = self.error_format.http_status(status).as_u16();
            let response = &mut self.value["responses"][response_status.to_string()];
            let line = format!("`{}`: {}", code.as_str(), code.description());
            let known = response["description"].as_str().unwrap_or_default();
            if !known.contains(&line) {
                let separator = if known.is_empty() { "" } else { "\n\n" };
                response["description"] = json!(format!("{known}{separator}{line}"));
            }
            response["content"] = json!({ self.error_format.media_type(): { "schema": schema } });
            let header = match response_status {
                401 => "WWW-Authenticate",
                429 | 503 | 529 => "Retry-After",
                _ => continue,
            };
            response["headers"][header] = json!({ "schema": { "type": "string" } });
        }
        self
    }
}
