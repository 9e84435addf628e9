//! Configuration errors, in the wording that operators read.

use super::*;

#[test]
fn an_error_has_file_line_and_key() {
    let cases = [
        ("[server]\nlisten = 5\n", "2: server.listen: expected a string, found an integer"),
        ("[server]\nlisten = \"nowhere\"\n", "2: server.listen: not a socket address"),
        ("[server]\nlistn = \"x\"\n", "2: server.listn: unknown key `listn`; did you mean `listen`?"),
        ("[serv]\n", "1: serv: unknown key `serv`; expected one of `agents`, `tools`"),
        ("[servr]\n", "1: servr: unknown key `servr`; did you mean `server`?"),
        ("server = 5\n", "1: server: expected a table, found an integer"),
        ("x = \n", "1: x: "),
        ("[auth]\nmode = \"jwt\"\n", "2: auth.mode: `jwt` is not supported yet"),
        ("[auth]\nmode = \"magic\"\n", "2: auth.mode: unknown value `magic`; expected one of `none`, `keys`"),
        ("[auth]\nmode = 5\n", "2: auth.mode: expected a string, found an integer"),
        ("[limits]\nsteps_max = -1\n", "2: limits.steps_max: out of range; expected 0 to 4294967295"),
        ("[limits]\nheartbeat_ms = 0\n", "2: limits.heartbeat_ms: out of range; expected at least 1"),
        ("[limits]\nrun_cost_max = 0.0000001\n", "2: limits.run_cost_max: out of range, or too precise"),
        ("[limits]\nrun_cost_max = -1\n", "2: limits.run_cost_max: out of range; expected at least 0"),
        ("[limits]\nrun_cost_max = 1e300\n", "2: limits.run_cost_max: out of range"),
        ("[limits]\nrun_cost_max = nan\n", "2: limits.run_cost_max: out of range"),
        ("[providers.p]\nkind = \"ag-ui\"\n", "2: providers.p.kind: the kind `ag-ui` is not supported yet"),
        (
            "[providers.p]\nkind = \"openai\"\n",
            "2: providers.p.kind: the kind `openai` does not exist; expected one of `scripted`",
        ),
        ("[providers.p]\nkind = \"scripted\"\n", "1: providers.p: `file` is missing"),
        ("[server]\norigins = [\n\"*\"]\n", "3: server.origins: `*` is not an origin"),
        ("[fetch]\nports = [80, 0]\n", "2: fetch.ports: out of range; expected 1 to 65535"),
        ("[fetch]\nallow_private = \"yes\"\n", "2: fetch.allow_private: expected a boolean, found a string"),
        ("[fetch]\nallow_private = [\"10.0.0.0/8\"]\n", "2: fetch.allow_private: `10.0.0.0/8` is not an IP address"),
        ("[fetch]\nbytes_max = 67108865\n", "2: fetch.bytes_max: out of range; expected 1 to 67108864"),
        ("[agents.\"a/b\"]\nmodel = \"x/y\"\n", "1: agents.\"a/b\": a name must have"),
    ];
    for (text, wanted) in cases {
        let error = refused(text);
        assert!(error.starts_with(&format!("DIR/headwater.toml:{wanted}")), "\n{error}\n{wanted}");
    }
    let error = refused("[providers.p]\nkind = \"scripted\"\nfile = \"none.toml\"\n");
    assert!(error.starts_with("DIR/none.toml: "), "{error}");
}

#[test]
fn provider_errors_are_found_and_keys_are_never_shown() {
    let cases = [
        ("api_key = \"s3cret-value\"", "api_key: do not write keys into this file; use `env:NAME` or `file:PATH`"),
        ("api_key = \"Bearer {env:PATH}\"", "api_key: do not write keys into this file"),
        ("api_key = \"env:NO_SUCH_KEY\"", "api_key: `env:NO_SUCH_KEY` cannot be resolved: the variable is not set"),
        ("api_key = \"file:none\"", "api_key: `file:DIR/none` cannot be resolved: "),
        ("base_url = \"localhost:1\"", "base_url: not an HTTP URL"),
        ("base_url = \"http://me:s3cret@h/\"", "base_url: do not put credentials into the URL"),
        ("headers = { \"a b\" = \"x\" }", "headers.\"a b\": `a b` is not a header name"),
        ("headers = { api-key = \"s3cret\" }", "headers.api-key: warning: do not write secrets into this file"),
        ("options = 1", "options: must be a table"),
        ("idle_timeout_ms = 0", "idle_timeout_ms: out of range; expected 1 to 31536000000"),
        ("response_bytes_max = 0", "response_bytes_max: out of range; expected at least 1"),
        ("file = \"plays.toml\"", "file: does not apply to this kind of provider; only to `scripted`"),
    ];
    for (line, wanted) in cases {
        for kind in ["openai-responses", "anthropic", "openai-chat"] {
            let found = added(&format!("[providers.p]\nkind = \"{kind}\"\n{line}\n"));
            assert!(found.starts_with(&format!("providers.p.{wanted}")), "\n{found}\n{wanted}");
        }
    }
    let scripted = "[providers.p]\nkind = \"scripted\"\nfile = \"plays.toml\"\nbase_url = \"http://h/\"\n";
    assert!(added(scripted).starts_with("providers.p.base_url: does not apply to a scripted provider"));
}

#[test]
fn agent_errors_are_found_with_a_suggestion() {
    let cases = [
        (
            "model = \"mine/a\"\ntools = [\"get_wether\"]",
            "agents.x.tools: agent `x` has the tool `get_wether`, which is not defined; did you mean `get_weather`?",
        ),
        (
            "model = \"mine/a\"\ntools = [\"zzz\"]",
            "agents.x.tools: agent `x` has the tool `zzz`, which is not defined; expected one of `get_weather`, `demo`, `x`",
        ),
        ("model = \"mine/a\"\ntools = [\"demo\", \"demo\"]", "agents.x.tools: agent `x` has `demo` twice; remove one"),
        ("model = \"mien/a\"", "agents.x.model: no provider for `mien/a`; did you mean `mine`?"),
        ("model = \"mine\"", "agents.x.model: no provider for `mine`; write provider/model; defined: `mine`"),
        ("model = []", "agents.x.model: the list must not be empty"),
        ("tools = []", "agents.x: `model` is missing; write `model = \"provider/model\"`"),
        ("upstream = { protocol = \"ag-ui\" }", "agents.x.upstream: remote agents are not supported yet; set `model`"),
        ("modl = 1\nmodel = \"mine/a\"", "agents.x.modl: unknown key `modl`; did you mean `model`?"),
        ("model = \"mine/a\"\nhandoffs = [\"x\"]", "agents.x.handoffs: agent `x` cannot hand over to itself"),
        (
            "model = \"mine/a\"\nhandoffs = [\"dmeo\"]",
            "agents.x.handoffs: agent `x` hands over to `dmeo`, which is not defined; did you mean `demo`?",
        ),
        (
            "model = \"mine/a\"\nhandoffs = [\"demo\", { agent = \"demo\" }]",
            "agents.x.handoffs: agent `x` has `transfer_to_demo` twice; remove one, or rename an agent",
        ),
        (
            "model = \"mine/a\"\nhandoffs = [{ history = \"all\" }]",
            "agents.x.handoffs: `agent` is missing; write the name of the agent to hand over to",
        ),
        (
            "model = \"mine/a\"\nhandoffs = [{ agent = \"demo\", history = \"some\" }]",
            "agents.x.handoffs.history: unknown value `some`; expected one of `all`, `messages`, `input`",
        ),
        (
            "model = \"mine/a\"\nhistory = { turn = 1 }",
            "agents.x.history.turn: unknown key `turn`; did you mean `turns`?",
        ),
        (
            "model = \"mine/a\"\ncompaction = { keep_turns = 1 }",
            "agents.x.compaction: `after_tokens` is missing; write the number of tokens that triggers compaction",
        ),
        (
            "model = \"mine/a\"\ncompaction = { after_tokens = 1, model = \"no/a\" }",
            "agents.x.compaction.model: no provider for `no/a`; expected one of `mine`",
        ),
        (
            "model = \"mine/a\"\ncallable = [\"ann\", \"*\"]",
            "agents.x.callable: `*` is not a user name; to allow everyone, write `true`",
        ),
        ("model = \"mine/a\"\ncallable = 1", "agents.x.callable: expected a boolean, found an integer"),
        ("model = \"mine/a\"\ninput_hook = {}", "agents.x.input_hook: a hook needs either a `url` or a `command`"),
        (
            "model = \"mine/a\"\ninput_hook = { url = \"ftp://x/\" }",
            "agents.x.input_hook.url: not an HTTP URL; it must start with `http://` or `https://`",
        ),
    ];
    for (table, wanted) in cases {
        assert_eq!(added(&format!("[agents.x]\n{table}\n")), wanted);
    }
    let long = format!(
        "[agents.{0}]\nmodel = \"mine/a\"\n[agents.x]\nmodel = \"mine/a\"\nhandoffs = [\"{0}\"]\n",
        "l".repeat(60)
    );
    assert!(added(&long).contains("is longer than 64 characters, which providers reject"));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn tool_errors_are_found_with_a_suggestion() {
    const HTTP: &str = "kind = \"http\"\nparameters = { type = \"object\", properties = { item = {} } }";
    let http = |more: &str| format!("{HTTP}\n{more}");
    let cases = [
        (
            "description = \"x\"".to_owned(),
            "tools.t: `kind` is missing; expected one of `builtin`, `http`, `command`, `client`, `agent`",
        ),
        (
            "kind = \"mcp\"".to_owned(),
            "tools.t.kind: an MCP server is not a tool; write `[mcp.NAME]`, and `mcp:NAME` in an agent's `tools`",
        ),
        (
            "kind = \"magic\"".to_owned(),
            "tools.t.kind: unknown value `magic`; expected one of `builtin`, `http`, `command`, `client`, `agent`",
        ),
        (
            "kind = \"client\"\nurl = \"x\"".to_owned(),
            "tools.t.url: does not apply to this kind of tool; only to `http`",
        ),
        (
            "kind = \"client\"\nidempotent = true".to_owned(),
            "tools.t.idempotent: does not apply to this kind of tool; only to `builtin`, `http`, `command`",
        ),
        (
            "kind = \"client\"\nparameters = { type = \"string\" }".to_owned(),
            "tools.t.parameters: arguments are an object; write `type = \"object\"` and describe them under `properties`",
        ),
        ("kind = \"client\"\nparameters = 5".to_owned(), "tools.t.parameters: expected a table, found an integer"),
        (
            "kind = \"client\"\nparameters = { type = \"object\", x = nan }".to_owned(),
            "tools.t.parameters: cannot be converted to JSON; remove dates, `nan` and `inf`, and reduce the nesting",
        ),
        (
            "kind = \"client\"\ntimeout = 1\ntimeout_ms = 1000".to_owned(),
            "tools.t.timeout: `timeout` and `timeout_ms` are the same setting; remove one",
        ),
        ("kind = \"client\"\ntimeout = 0".to_owned(), "tools.t.timeout: out of range, or too precise"),
        (
            "kind = \"client\"\napproval = \"sometimes\"".to_owned(),
            "tools.t.approval: invalid rule: column 10: expected `==`, `!=`, `<`, `<=`, `>`, `>=`, `in` or `contains`, found the end; write `never`, `always`, or a rule like `quantity > 100`",
        ),
        (
            "kind = \"client\"\napproval_timeout_seconds = 99999999999".to_owned(),
            "tools.t.approval_timeout_seconds: out of range; expected 1 to 31536000",
        ),
        (http(""), "tools.t: `url` is missing; write `url = \"https://…\"`"),
        (http("url = \"ftp://h/\""), "tools.t.url: not an HTTP URL; it must start with `http://` or `https://`"),
        (
            http("url = \"http:/h/{item}\""),
            "tools.t.url: `{item}` is allowed in the path and the query only; write out the host",
        ),
        (
            http("url = \"http://{item}/\""),
            "tools.t.url: `{item}` is allowed in the path and the query only; write out the host",
        ),
        (
            http("url = \"http://h:{item}\""),
            "tools.t.url: `{item}` is allowed in the path and the query only; write out the host",
        ),
        (
            http("url = 'http://h\\\\x/{item}'"),
            "tools.t.url: not a URL; write it like `https://example.com/items/{id}`",
        ),
        (
            http("url = \"http://u:s3cret@h/\""),
            "tools.t.url: do not put credentials into the URL; use `headers` and `env:NAME`",
        ),
        (http("url = \"http://h/{itme}\""), "tools.t.url: `{itme}` is not a parameter; did you mean `item`?"),
        (http("url = \"http://h/{item\""), "tools.t.url: unclosed `{`; write `{name}` for the argument of that name"),
        (
            http("url = \"http://h/\"\nbody = [{ a = \"{itme}\" }]"),
            "tools.t.body: `{itme}` is not a parameter; did you mean `item`?",
        ),
        (
            http("url = \"http://h/\"\nbody = {}\nmethod = \"GET\""),
            "tools.t.body: GET sends no body; write `method = \"POST\"`, or remove the body",
        ),
        (
            http("url = \"http://h/\"\nmethod = \"SEND\""),
            "tools.t.method: `SEND` is not a supported method; expected one of `GET`, `HEAD`, `DELETE`, `POST`, `PUT`, `PATCH`",
        ),
        (
            http("url = \"http://h/\"\nresult = \"data\""),
            "tools.t.result: `data` is not a JSON pointer; write it like `/data/0/name`",
        ),
        (
            http("url = \"http://h/\"\nheaders = { \"a b\" = \"x\" }"),
            "tools.t.headers.\"a b\": `a b` is not a header name; use letters, digits and `-`",
        ),
        (
            http("url = \"http://h/\"\nheaders = { a = \"x\\ny\" }"),
            "tools.t.headers.a: a header value cannot contain line breaks or control characters",
        ),
        (
            "kind = \"command\"".to_owned(),
            "tools.t: `command` is missing; write `command = [\"program\", \"argument\"]`",
        ),
        ("kind = \"command\"\ncommand = \"\"".to_owned(), "tools.t.command: the program name must not be empty"),
        (
            "kind = \"command\"\ncommand = \"sh\"\nenv_pass = [\"A=B\"]".to_owned(),
            "tools.t.env_pass: `A=B` is not a variable name; remove `=`",
        ),
        ("kind = \"agent\"".to_owned(), "tools.t: `agent` is missing; write the name of the agent to call"),
        ("kind = \"agent\"\nagent = \"dmeo\"".to_owned(), "tools.t.agent: unknown agent `dmeo`; did you mean `demo`?"),
    ];
    for (table, wanted) in cases {
        assert_eq!(added(&format!("[tools.t]\n{table}\n")), wanted, "{table}");
    }
    let error = added(
        "[tools.t]\nkind = \"client\"\nparameters = { type = \"object\", properties = { a = { type = \"strin\" } } }\n",
    );
    assert!(error.starts_with("tools.t.parameters: not a JSON Schema: "), "{error}");
    let error = added("[tools.get_wether]\nkind = \"builtin\"\n");
    assert_eq!(error, "tools.get_wether: unknown builtin tool `get_wether`; did you mean `get_weather`?");
    let error = added("[tools.demo]\nkind = \"client\"\n");
    assert_eq!(error, "tools.demo: an agent is called `demo`, too; rename one of them");
    let error = added("[tools.transfer_to_demo]\nkind = \"client\"\n");
    assert!(error.contains("the prefix `transfer_to_` is reserved for hand-offs"), "{error}");
    let error = added(&format!("[tools.{}]\nkind = \"client\"\n", "n".repeat(65)));
    assert!(error.contains("a name must have 1 to 64 letters"), "{error}");
    let error = added("[prices.\"mien/a\"]\ninput = 1\noutput = 1\n");
    assert_eq!(error, "prices.\"mien/a\": no provider for `mien/a`; did you mean `mine`?");
    let error = added("[prices.\"mine/a\"]\ninput = 1\n");
    assert_eq!(error, "prices.\"mine/a\": `output` is missing; write the price of a million tokens");
}

#[test]
fn a_missing_secret_is_an_error_and_a_literal_one_a_warning() {
    let header = |value: &str| {
        format!("{GOOD}[tools.t]\nkind = \"http\"\nurl = \"http://h/\"\nheaders = {{ Authorization = \"{value}\" }}\n")
    };
    let one = |value: &str| {
        let found = found(&header(value));
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].split_once("tools.t.headers.Authorization: ").unwrap().1.to_owned()
    };
    let missing = "the variable is not set; set it before the server starts";
    assert_eq!(one("env:HEADWATER_NO_SUCH_1"), format!("`env:HEADWATER_NO_SUCH_1` cannot be resolved: {missing}"));
    assert_eq!(
        one("Bearer {env:HEADWATER_NO_SUCH_1}"),
        format!("`env:HEADWATER_NO_SUCH_1` cannot be resolved: {missing}")
    );
    let error = one("Basic {file:no/key}");
    assert!(error.starts_with("`file:DIR/no/key` cannot be resolved: "), "{error}");
    assert!(one("Bearer s3cret-value").starts_with("warning: do not write secrets into this file; "));
    let plain = header("Bearer s3cret-value");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("plays.toml"), PLAYS).unwrap();
    std::fs::write(dir.path().join("c.toml"), plain).unwrap();
    let source = ConfigSource::read(&dir.path().join("c.toml")).unwrap();
    assert!(load_config(&source, Overrides::default()).is_ok(), "a warning stops nobody");
    good(&header("file:key"));
}

#[test]
fn a_rule_on_an_unknown_parameter_is_a_warning() {
    let text = "[tools.t]\nkind = \"client\"\nparameters = { type = \"object\", properties = { quantity = {} } }\napproval = \"quantty > 100\"\n";
    let wanted = "tools.t.approval: warning: `quantty` is not a parameter, so every call may need approval; did you mean `quantity`?";
    assert_eq!(added(text), wanted);
}

#[test]
fn all_errors_are_found_in_the_order_of_the_file() {
    let found = found(
        "[tools.b]\nkind = \"http\"\nurl = \"ftp://x\"\nurk = 1\n[agents.a]\nmodel = \"no/x\"\ntools = [\"c\",\n\"b\"]\n\
         [limits]\nsteps_max = \"x\"\n[providers.p]\nkind = \"scripted\"\nfile = \"none.toml\"\n[auth]\nmode = 1\n",
    );
    let places: Vec<&str> = found.iter().map(|line| line.split(": ").take(2).last().unwrap()).collect();
    let keys = ["tools.b.url", "tools.b.urk", "agents.a.model", "agents.a.tools", "limits.steps_max", "auth.mode"];
    assert_eq!(places[..6], keys, "{found:#?}");
    assert!(found.len() == 7 && found[6].starts_with("DIR/none.toml: "), "{found:#?}");
}

#[test]
fn invalid_toml_is_a_single_error() {
    let found = found("[agents.a]\nmodel = \n[tools.b\nkind = 'x'\n");
    assert!(found.len() >= 2 && found.iter().all(|line| line.starts_with("DIR/headwater.toml:")), "{found:#?}");
    assert!(found[0].starts_with("DIR/headwater.toml:2: agents.a.model: "), "{found:#?}");
    assert!(!found.iter().any(|line| line.contains("missing; write `model")), "{found:#?}");
}

#[test]
fn what_cannot_work_is_warned_of() {
    let command = "[tools.t]\nkind = \"command\"\ncommand = ";
    assert!(
        added(&format!("{command}\"no-such-program\"\n"))
            .ends_with("tools.t.command: warning: the program `no-such-program` is not in the server's `PATH`")
    );
    let missing = added(&format!("{command}[\"./none\"]\n"));
    assert!(missing.contains("warning: the program `DIR/none` cannot be started: "), "{missing}");
    assert!(added(&format!("{command}\"./key\"\n")).ends_with("`DIR/key` is not executable; run `chmod +x` on it"));
    assert!(added(&format!("{command}\"./\"\n")).ends_with(" is not a file"));
    let hook = "[agents.x]\nmodel = \"mine/a\"\ninput_hook = { command = \"no-such-program\" }\n";
    assert!(added(hook).starts_with("agents.x.input_hook.command: warning: "));
    let required = "[tools.t]\nkind = \"client\"\nparameters = { type = \"object\", properties = { city = {} }, required = [\"ctiy\", \"city\"] }\n";
    assert_eq!(
        added(required),
        "tools.t.parameters: warning: `required` names `ctiy`, which is not under `properties`; did you mean `city`?"
    );
    let price = |model: &str| format!("[prices.\"mine/{model}\"]\ninput = 1\noutput = 2\n");
    let unused = "prices.\"mine/gigantic\": warning: no agent uses this model; the price is for requests that name it";
    assert_eq!(added(&price("gigantic")), unused);
    assert!(added(&price("aa")).ends_with("; did you mean `mine/a`?"));
    good(&format!("{GOOD}{}", price("b")));
}

#[test]
fn agents_that_call_each_other_are_warned_of_once() {
    let agent = |name: &str, tools: &str| format!("[agents.{name}]\nmodel = \"mine/a\"\ntools = [{tools}]\n");
    let ask = "[tools.ask]\nkind = \"agent\"\nagent = \"x\"\n";
    let two = format!("{}{}{ask}", agent("x", "\"y\""), agent("y", "\"ask\""));
    let ends = "which only `[limits] depth_max` ends; remove a tool, or use `handoffs`";
    assert_eq!(added(&two), format!("agents.x.tools: warning: the agents `x`, `y` call each other, {ends}"));
    let three = [agent("x", "\"y\""), agent("y", "\"z\""), agent("z", "\"x\", \"demo\"")].concat();
    assert_eq!(added(&three), format!("agents.x.tools: warning: the agents `x`, `y`, `z` call each other, {ends}"));
    assert_eq!(added(&agent("x", "\"x\"")), format!("agents.x.tools: warning: agent `x` calls itself, {ends}"));
    good(&format!("{GOOD}{}{}", agent("x", "\"y\", \"demo\""), agent("y", "\"demo\"")));
}

#[test]
fn one_cause_is_one_finding() {
    // `added` wants exactly one.
    let models = "[agents.x]\nmodel = [\"openai/a\", \"openai/b\"]\n[prices.\"openai/a\"]\ninput = 1\noutput = 1\n";
    let set_key = "no provider for `openai/a`; set OPENAI_API_KEY in the environment, or define [providers.openai]";
    assert_eq!(added(models), format!("agents.x.model: {set_key}"));
    let secret = "[tools.t]\nkind = \"http\"\nurl = \"http://h/\"\nheaders = { A = \"env:NO_SUCH_KEY\", B = \"x {env:NO_SUCH_KEY}\" }\n";
    assert!(added(secret).contains("`env:NO_SUCH_KEY` cannot be resolved"));
    let parameters = "[tools.t]\nkind = \"http\"\nurl = \"http://h/{a}\"\nbody = [\"{a}\"]\nmethod = \"POST\"\napproval = \"a > 1\"\nparameters = { properties = { a = {} } }\n";
    assert!(added(parameters).starts_with("tools.t.parameters: arguments are an object"));
    let twice = "[tools.t]\nkind = \"http\"\nurl = \"http://h/{b}/{b}\"\n";
    assert!(added(twice).contains("`{b}` is not a parameter"));
    let exposed = "[auth]\nmode = \"kyes\"\n[server]\nlisten = \"0.0.0.0:0\"\n";
    assert!(added(exposed).starts_with("auth.mode: unknown value `kyes`"));
}

#[test]
fn a_secret_that_cannot_be_redacted_is_refused() {
    let tool =
        |header: &str| format!("[tools.t]\nkind = \"http\"\nurl = \"http://h/\"\nheaders = {{ A = \"{header}\" }}\n");
    let short = "it has fewer than 8 characters, so it cannot be redacted in messages; use a longer one";
    assert_eq!(
        added(&tool("{file:short}")),
        format!("tools.t.headers.A: `file:DIR/short` cannot be resolved: {short}")
    );
    let set = |name: &str| (name == "OPENAI_API_KEY").then(|| "none".to_owned());
    let wanted = "`OPENAI_API_KEY` in the environment has fewer than 8 characters, so it cannot be redacted; unset it if the service needs no key";
    assert_eq!(under(GOOD, set).1, [wanted], "one variable, two providers");
}
