//! The file as definitions, providers and tools. A name that leads nowhere is refused with what there is instead.

use super::file::{AgentTable, Beside, File, LimitsTable, ProviderTable, ServerTable, Source, ToolTable, read_bounded};
use super::{AuthMode, Config, ConfigError, DATA_DIR, HttpLimits, LISTEN, Overrides};
use engine::SystemClock;
use model::definition::{Agent, Definitions, Tool};
use model::id::is_plain;
use model::limits::RunLimits;
use providers::Router;
use providers::scripted::{FILE_BYTES_MAX, ScenarioError, Scenarios, Scripted};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use toml::Spanned;

/// Kinds of tools that are to come: a config that names one is right, only early.
const TOOL_KINDS_TO_COME: [&str; 4] = ["http", "command", "client", "mcp"];
const PROVIDER_KINDS_TO_COME: [&str; 7] =
    ["openai-responses", "anthropic", "openai-chat", "ag-ui", "responses", "ui-stream", "task"];

/// Turns a file into settings.
pub(crate) fn config(source: &Source, overrides: Overrides) -> Result<Config, ConfigError> {
    let file = source.parse()?;
    let mut digest = Sha256::new();
    digest.update(source.text.as_bytes());
    let models = models(source, &file, &mut digest)?;
    let definitions = definitions(source, &file, &models, hex(&digest.finalize()))?;
    let auth = auth(source, &file)?;
    let listen = listen(source, &file.server, overrides.listen)?;
    if auth == AuthMode::None && !listen.ip().is_loopback() {
        return Err(ConfigError::Exposed(listen));
    }
    let hosts = checked(source, file.server.hosts, is_host, "a host name, with or without a port")?;
    let origins = checked(source, file.server.origins, is_origin, "an origin, like https://example.com")?;
    Ok(Config {
        listen,
        data_dir: overrides.data_dir.or(file.server.data_dir).unwrap_or_else(|| PathBuf::from(DATA_DIR)),
        auth,
        hosts,
        origins,
        stop_grace: Duration::from_millis(file.server.stop_grace_ms.unwrap_or(5_000)),
        commit_spacing: Duration::from_millis(file.store.commit_spacing_ms.unwrap_or(0)),
        http: http_limits(&file.limits),
        definitions,
        models,
        tools: Arc::new(tools::Builtin),
    })
}

fn listen(source: &Source, server: &ServerTable, told: Option<String>) -> Result<SocketAddr, ConfigError> {
    let parse = |text: &str| {
        let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
        local.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).or_else(|| text.parse().ok())
    };
    match (told, &server.listen) {
        (Some(text), _) => parse(&text).ok_or(ConfigError::Listen(text)),
        (None, Some(text)) => parse(text.get_ref())
            .ok_or_else(|| source.at(text.span(), "not an address: use ip:port, like 127.0.0.1:8787")),
        (None, None) => parse(LISTEN).ok_or_else(|| ConfigError::Listen(LISTEN.to_owned())),
    }
}

fn auth(source: &Source, file: &File) -> Result<AuthMode, ConfigError> {
    let Some(mode) = &file.auth.mode else { return Ok(AuthMode::None) };
    match mode.get_ref().as_str() {
        "none" => Ok(AuthMode::None),
        "keys" => Ok(AuthMode::Keys),
        "jwt" => Err(source.at(mode.span(), "`jwt` is not supported yet; there is `none` and `keys`")),
        other => Err(source.at(mode.span(), format!("there is no mode `{other}`; there is `none` and `keys`"))),
    }
}

fn models(source: &Source, file: &File, digest: &mut Sha256) -> Result<Router, ConfigError> {
    let mut router = Router::new();
    for (name, table) in &file.providers {
        named(source, name)?;
        let kind = table.kind.get_ref().as_str();
        if kind != "scripted" {
            let to_come = PROVIDER_KINDS_TO_COME.contains(&kind);
            let what = if to_come { "is not supported yet" } else { "does not exist" };
            return Err(source.at(table.kind.span(), format!("the kind `{kind}` {what}; there is `scripted`")));
        }
        let (text, origin) = scenario_text(source, name, table)?;
        digest.update(text.as_bytes());
        let scenarios = Scenarios::parse(&text, &origin)?;
        let scripted = Scripted::new(scenarios, Arc::new(|| SystemClock.now_us()));
        router = router.with(name.get_ref().clone(), Arc::new(scripted));
    }
    Ok(router)
}

fn scenario_text(
    source: &Source,
    name: &Spanned<String>,
    table: &ProviderTable,
) -> Result<(String, String), ConfigError> {
    let Some(file) = &table.file else {
        return Err(source.at(name.span(), "`file` is missing: a scripted provider plays a scenario file"));
    };
    match &source.beside {
        Beside::Embedded(files) => {
            let found = files.iter().find(|(name, _)| *name == file.get_ref().as_str());
            let (name, text) = found.ok_or_else(|| source.at(file.span(), "there is no such file"))?;
            Ok(((*text).to_owned(), (*name).to_owned()))
        }
        Beside::Folder(folder) => {
            let path = folder.join(file.get_ref());
            let origin = path.display().to_string();
            let read = read_bounded(&path, FILE_BYTES_MAX);
            let text = read.map_err(|source| ScenarioError::Read { origin: origin.clone(), source })?;
            Ok((text, origin))
        }
    }
}

fn definitions(source: &Source, file: &File, models: &Router, digest: String) -> Result<Definitions, ConfigError> {
    let mut tools = BTreeMap::new();
    for (name, table) in &file.tools {
        named(source, name)?;
        tools.insert(name.get_ref().clone(), tool(source, name, table)?);
    }
    let mut agents = BTreeMap::new();
    for (name, table) in &file.agents {
        named(source, name)?;
        agents.insert(name.get_ref().clone(), agent(source, file, models, name.get_ref(), table)?);
    }
    let providers = models.names().map(str::to_owned).collect();
    Ok(Definitions { agents, tools, providers, limits: run_limits(&file.limits), digest })
}

fn tool(source: &Source, name: &Spanned<String>, table: &ToolTable) -> Result<Tool, ConfigError> {
    let kind = table.kind.get_ref().as_str();
    if TOOL_KINDS_TO_COME.contains(&kind) {
        return Err(source.at(table.kind.span(), format!("the kind `{kind}` is not supported yet; there is `builtin`")));
    }
    if kind != "builtin" {
        return Err(source.at(table.kind.span(), format!("the kind `{kind}` does not exist; there is `builtin`")));
    }
    let foreign = [&table.url, &table.command, &table.parameters, &table.description, &table.approval];
    if let Some(foreign) = foreign.into_iter().flatten().next() {
        return Err(source.at(foreign.span(), "has no place in a builtin tool"));
    }
    let Some(builtin) = tools::builtin::definition(name.get_ref()) else {
        let what = format!("there is no builtin tool `{}`; there is {}", name.get_ref(), list(tools::builtin::names()));
        return Err(source.at(name.span(), what));
    };
    Ok(Tool {
        display_name: table.display_name.clone().or(builtin.display_name),
        timeout_ms: table.timeout_ms.or(builtin.timeout_ms),
        idempotent: table.idempotent.unwrap_or(builtin.idempotent),
        on_crash: table.on_crash.unwrap_or(builtin.on_crash),
        ..builtin
    })
}

fn agent(source: &Source, file: &File, models: &Router, name: &str, table: &AgentTable) -> Result<Agent, ConfigError> {
    for model in &table.model.get_ref().0 {
        let provider = model.split_once('/').filter(|(_, model)| !model.is_empty()).map(|(provider, _)| provider);
        if provider.is_none_or(|provider| !models.names().any(|known| known == provider)) {
            let known: Vec<&str> = models.names().collect();
            let what = format!(
                "agent `{name}` asks `{model}`, which no provider answers: use provider/model; there is {}",
                list(&known)
            );
            return Err(source.at(table.model.span(), what));
        }
    }
    for tool in &table.tools {
        let wanted = tool.get_ref();
        if file.agents.keys().any(|agent| agent.get_ref() == wanted) {
            return Err(source
                .at(tool.span(), format!("agent `{name}` asks agent `{wanted}`: sub-agents are not supported yet")));
        }
        if !file.tools.keys().any(|tool| tool.get_ref() == wanted) {
            let known: Vec<&str> = file.tools.keys().map(|tool| tool.get_ref().as_str()).collect();
            let what =
                format!("agent `{name}` has the tool `{wanted}`, which is not defined; there is {}", list(&known));
            return Err(source.at(tool.span(), what));
        }
    }
    if let Some(handoff) = table.handoffs.first() {
        return Err(source.at(handoff.span(), format!("agent `{name}`: hand-offs are not supported yet")));
    }
    Ok(Agent {
        name: name.to_owned(),
        models: table.model.get_ref().0.clone(),
        instructions: table.instructions.clone(),
        tools: table.tools.iter().map(|tool| tool.get_ref().clone()).collect(),
        handoffs: Vec::new(),
    })
}

fn run_limits(limits: &LimitsTable) -> RunLimits {
    let base = RunLimits::default();
    RunLimits {
        steps_max: limits.steps_max.unwrap_or(base.steps_max),
        parallel_tools_max: limits.parallel_tools_max.unwrap_or(base.parallel_tools_max),
        tool_timeout_ms: limits.tool_timeout_ms.unwrap_or(base.tool_timeout_ms),
        tool_output_bytes_max: limits.tool_output_bytes_max.unwrap_or(base.tool_output_bytes_max),
        run_deadline_ms: limits.run_deadline_ms.unwrap_or(base.run_deadline_ms),
    }
}

fn http_limits(limits: &LimitsTable) -> HttpLimits {
    let base = HttpLimits::default();
    let ms = |value: Option<u64>, base: Duration| value.map_or(base, |ms| Duration::from_millis(ms.max(1)));
    HttpLimits {
        body_bytes_max: limits.body_bytes_max.unwrap_or(base.body_bytes_max),
        body_read: ms(limits.body_read_ms, base.body_read),
        header_read: ms(limits.header_read_ms, base.header_read),
        write_stall: ms(limits.write_stall_ms, base.write_stall),
        heartbeat: ms(limits.heartbeat_ms, base.heartbeat),
        streams_per_user_max: limits.streams_per_user_max.unwrap_or(base.streams_per_user_max),
        connections_max: limits.connections_max.unwrap_or(base.connections_max).max(1),
        input_parts_max: limits.input_parts_max.unwrap_or(base.input_parts_max),
        tools_max: limits.tools_max.unwrap_or(base.tools_max),
    }
}

fn named(source: &Source, name: &Spanned<String>) -> Result<(), ConfigError> {
    let what = "a name has 1 to 64 letters, digits, `_` or `-`";
    if is_plain(name.get_ref()) { Ok(()) } else { Err(source.at(name.span(), what)) }
}

fn checked(
    source: &Source,
    texts: Vec<Spanned<String>>,
    fits: fn(&str) -> bool,
    wanted: &str,
) -> Result<Vec<String>, ConfigError> {
    let check = |text: Spanned<String>| match fits(text.get_ref()) {
        true => Ok(text.into_inner().to_ascii_lowercase()),
        false => Err(source.at(text.span(), format!("`{}` is not {wanted}", text.get_ref()))),
    };
    texts.into_iter().map(check).collect()
}

fn is_host(text: &str) -> bool {
    !text.contains('@') && text.parse::<axum::http::uri::Authority>().is_ok()
}

fn is_origin(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(is_host)
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { format!("`{}`", names.join("`, `")) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
