mod mcp;
mod mistakes;

use super::*;
use ::fetch::PrivateAddresses;
use model::definition::OnCrash;
use model::definition::{ApprovalOnTimeout, ApprovalPolicy, HandoffHistory, ToolExecutor};
use model::limits::CostMicros;
use serde_json::json;
use std::path::Path;

const GOOD: &str = r#"
[agents.demo]
model = ["mine/a", "mine/b"]
tools = ["get_weather"]

[tools.get_weather]
kind = "builtin"
timeout_ms = 1500

[providers.mine]
kind = "scripted"
file = "plays.toml"
"#;

const PLAYS: &str = "[[scenario]]\n[[scenario.turn]]\nsteps = [{ text = \"hi\" }]\n";

fn write_program(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The findings in a file, with its folder written as DIR.
fn check_text(text: &str, overrides: Overrides) -> (Config, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("plays.toml"), PLAYS).unwrap();
    std::fs::write(dir.path().join("key"), "s3cret-value\n").unwrap();
    std::fs::write(dir.path().join("short"), "s3cret\n").unwrap();
    write_program(&dir.path().join("hook"));
    let path = dir.path().join("headwater.toml");
    std::fs::write(&path, text).unwrap();
    let shown = dir.path().display().to_string();
    let source = ConfigSource::read(&path).unwrap();
    let (config, findings) = check_config(&source, overrides.clone()).unwrap();
    let first =
        findings.iter().find(|finding| finding.severity == Severity::Error).map(|finding| finding.error.to_string());
    assert_eq!(load_config(&source, overrides).err().map(|error| error.to_string()), first, "`serve` says the first");
    let lines: Vec<String> = findings.iter().map(|finding| finding.error.to_string().replace(&shown, "DIR")).collect();
    for line in &lines {
        assert!(!line.contains('\n'), "one line: {line}");
        assert!(!line.contains("s3cret"), "no secrets: {line}");
    }
    (config, lines)
}

fn good(text: &str) -> Config {
    let (config, findings) = check_text(text, Overrides::default());
    assert_eq!(findings, [""; 0]);
    config
}

fn found(text: &str) -> Vec<String> {
    check_text(text, Overrides::default()).1
}

fn refused(text: &str) -> String {
    found(text).into_iter().next().unwrap()
}

/// The only finding of a valid file with this addition.
fn added(text: &str) -> String {
    let found = found(&format!("{GOOD}{text}"));
    assert_eq!(found.len(), 1, "{text}\n{found:#?}");
    found[0].split_once(": ").unwrap().1.to_owned()
}

#[test]
fn the_demo_is_a_config_like_any_other() {
    let demo = load_config(&ConfigSource::demo(), Overrides::default()).unwrap();
    assert!(demo.definitions.agents.contains_key("demo"));
    assert_eq!(demo.listen, DEFAULT_LISTEN);
    assert_eq!(demo.definitions.digest.len(), 64);
}

#[test]
fn a_file_becomes_definitions() {
    let config = good(GOOD);
    let agent = config.definitions.agents.get("demo").unwrap();
    assert_eq!(agent.models, ["mine/a", "mine/b"]);
    assert_eq!(config.definitions.tools.get("get_weather").unwrap().timeout_ms, Some(1500));
    assert!(config.definitions.providers.contains("mine"));
}

#[test]
fn an_agent_has_every_key_of_its_table() {
    let config = good(
        r#"
        [agents.a]
        model = "mine/a"
        description = "Knows."
        instructions = "Be brief."
        tools = ["b"]
        handoffs = ["b", { agent = "c", history = "messages" }]
        history = { turns = 3, tokens = 4000 }
        compaction = { after_tokens = 100, model = "mine/small" }
        input_hook = { command = ["./hook", "-v"] }
        [agents.b]
        model = "mine/b"
        input_hook = { url = "http://127.0.0.1:9/", timeout_ms = 5 }
        compaction = { after_tokens = 100, keep_turns = 0 }
        [agents.c]
        model = "mine/c"
        [providers.mine]
        kind = "scripted"
        file = "plays.toml"
        "#,
    );
    let agent = &config.definitions.agents["a"];
    assert_eq!((agent.description.as_str(), agent.instructions.as_str()), ("Knows.", "Be brief."));
    let handoffs: Vec<_> = agent.handoffs.iter().map(|handoff| (handoff.agent.as_str(), handoff.history)).collect();
    assert_eq!(handoffs, [("b", HandoffHistory::All), ("c", HandoffHistory::Messages)]);
    assert_eq!((agent.history.turns, agent.history.tokens), (Some(3), Some(4000)));
    let compaction = agent.compaction.as_ref().unwrap();
    assert_eq!((compaction.after_tokens, compaction.keep_turns), (100, 4));
    assert_eq!(compaction.model.as_deref(), Some("mine/small"));
    let hook = agent.input_hook.as_ref().unwrap();
    assert!(hook.command[0].starts_with('/') && hook.command[0].ends_with("/hook"), "beside the file: {hook:?}");
    assert_eq!((hook.url.as_deref(), &hook.command[1..], hook.timeout_ms), (None, &["-v".to_owned()][..], 10_000));
    let other = &config.definitions.agents["b"];
    let hook = other.input_hook.as_ref().unwrap();
    assert_eq!((hook.url.as_deref(), hook.command.len(), hook.timeout_ms), (Some("http://127.0.0.1:9/"), 0, 5));
    assert_eq!(other.compaction.as_ref().unwrap().keep_turns, 0);
}

#[test]
fn with_keys_the_file_says_who_may_call_what() {
    const AGENTS: &str = r#"
        [agents.front]
        model = "mine/a"
        tools = ["back"]
        handoffs = ["ours", "heir"]
        [agents.back]
        model = "mine/a"
        [agents.heir]
        model = "mine/a"
        callable = true
        [agents.ours]
        model = "mine/a"
        callable = ["ann@example.com"]
        [agents.closed]
        model = "mine/a"
        callable = false
        [providers.mine]
        kind = "scripted"
        file = "plays.toml"
        "#;
    let (ann, ben) = (model::UserId::from("ann@example.com"), model::UserId::from("ben"));
    let names = ["front", "back", "heir", "ours", "closed", "mine/a"];
    let callable = |config: &Config, user| names.map(|name| config.definitions.may_call(user, name));
    let none = good(AGENTS);
    assert_eq!(callable(&none, &ben), [true; 6]);
    let keys = good(&format!("[auth]\nmode = \"keys\"\n{AGENTS}"));
    assert_eq!(callable(&keys, &ann), [true, false, true, true, false, false]);
    assert_eq!(callable(&keys, &ben), [true, false, true, false, false, false]);
    assert_eq!(keys.definitions.callable_agents(&ben).collect::<Vec<_>>(), ["front", "heir"]);
    let models = good(&format!("[auth]\nmode = \"keys\"\nmodels = [\"ben\"]\n{AGENTS}"));
    assert_eq!(
        (models.definitions.may_call(&ann, "mine/a"), models.definitions.may_call(&ben, "mine/a")),
        (false, true)
    );
    assert_eq!(keys.definitions.digest, none.definitions.digest, "a run keeps nothing of it");
}

#[test]
fn the_token_of_the_metrics_is_not_in_the_file() {
    let digest = good(&format!("{GOOD}[metrics]\ntoken = \"file:key\"\n")).metrics_token_digest;
    assert_eq!(digest, Some(gateway::secret_token::secret_digest("s3cret-value")));
    let plain = "metrics.token: a token does not belong into this file; write `env:NAME` or `file:PATH`";
    assert_eq!(added("[metrics]\ntoken = \"s3cret\"\n"), plain);
    assert!(added("[metrics]\ntoken = \"env:NO_SUCH_TOKEN\"\n").contains("`env:NO_SUCH_TOKEN` cannot be resolved"));
}

#[test]
fn a_tool_has_every_key_of_its_table() {
    let named = GOOD.replace("timeout_ms = 1500", "display_name = \"Sky\"");
    let config = good(&format!(
        "{named}{}",
        r#"
        [tools.order]
        kind = "http"
        description = "Orders."
        url = "https://127.0.0.1:9/users/{user}/orders?dry={dry}"
        headers = { Authorization = "Bearer {file:key}", Accept = "text/plain" }
        body = { items = ["{item}"], from = "here" }
        result = "/order/id"
        approval = "quantity > 100 and user != 'me'"
        approval_timeout_seconds = 60
        approval_on_timeout = "approve"
        idempotent = true
        on_crash = "ask"
        timeout = 1.5
        output_bytes_max = 10
        [tools.order.parameters]
        type = "object"
        properties.user.type = "string"
        properties.dry.type = "boolean"
        properties.item = { type = "string" }
        properties.quantity = { type = "integer", minimum = 1 }
        [tools.count]
        kind = "command"
        command = ["wc", "-l"]
        dir = "."
        env_pass = ["PATH"]
        env = { KEY = "file:key", MODE = "x{y}" }
        [tools.pick]
        kind = "client"
        parameters = { type = "object" }
        approval = "always"
        [tools.ask]
        kind = "agent"
        agent = "demo"
        description = "Ask for help."
        "#
    ));
    let tool = &config.definitions.tools["order"];
    let ToolExecutor::Http(http) = &tool.executor else { panic!("{tool:?}") };
    assert_eq!((http.method.as_str(), http.result.as_deref()), ("POST", Some("/order/id")));
    assert_eq!(http.body, Some(json!({"items": ["{item}"], "from": "here"})));
    let authorization = &http.headers["Authorization"];
    assert!(authorization.starts_with("Bearer {file:/") && authorization.ends_with("/key}"), "{authorization}");
    assert_eq!(tool.spec.parameters["properties"]["quantity"], json!({"type": "integer", "minimum": 1}));
    let ApprovalPolicy::When(rule) = &tool.approval else { panic!("{tool:?}") };
    assert_eq!(rule.to_string(), "quantity > 100 and user != 'me'");
    assert_eq!((tool.approval_timeout_seconds, tool.approval_on_timeout), (60, ApprovalOnTimeout::Approve));
    assert_eq!((tool.idempotent, tool.on_crash), (true, OnCrash::Ask));
    assert_eq!((tool.timeout_ms, tool.output_bytes_max), (Some(1500), Some(10)));

    let tool = &config.definitions.tools["count"];
    let ToolExecutor::Command(command) = &tool.executor else { panic!("{tool:?}") };
    assert_eq!(
        (&command.command[..], &command.env_pass[..]),
        (&["wc", "-l"].map(String::from)[..], &["PATH".to_owned()][..])
    );
    assert!(command.dir.as_ref().unwrap().starts_with('/'), "{command:?}");
    assert!(command.env["KEY"].starts_with("file:/") && command.env["MODE"] == "x{y}", "{command:?}");

    let tool = &config.definitions.tools["pick"];
    assert_eq!((&tool.executor, &tool.approval), (&ToolExecutor::Client, &ApprovalPolicy::Always));
    assert_eq!(tool.spec.parameters, json!({"type": "object", "properties": {}}));
    let tool = &config.definitions.tools["ask"];
    assert_eq!(tool.executor, ToolExecutor::Agent { agent: "demo".to_owned(), others: Vec::new() });
    assert_eq!((tool.spec.name.as_str(), tool.spec.description.as_str()), ("ask", "Ask for help."));
    assert!(tool.spec.parameters["properties"]["prompt"].is_object());
    // The builtin tool's own settings stay unless the file overrides them.
    let builtin = &config.definitions.tools["get_weather"];
    assert_eq!(builtin.display_name.as_deref(), Some("Sky"));
    assert!(!builtin.spec.description.is_empty() && builtin.executor == ToolExecutor::Builtin);
}

#[test]
fn the_default_http_method_depends_on_the_arguments() {
    let method = |more: &str| {
        let text = format!("{GOOD}[tools.t]\nkind = \"http\"\nurl = \"http://h/{{a}}\"\n{more}");
        let config = good(&text);
        let ToolExecutor::Http(http) = &config.definitions.tools["t"].executor else { panic!("not http") };
        http.method.clone()
    };
    let one = "parameters = { type = \"object\", properties = { a = {} } }\n";
    let two = "parameters = { type = \"object\", properties = { a = {}, b = {} } }\n";
    assert_eq!(method(one), "GET");
    assert_eq!(method(two), "POST");
    assert_eq!(method(&format!("{one}body = \"{{a}}\"\n")), "POST");
    assert_eq!(method(&format!("{two}method = \"delete\"\n")), "DELETE");
}

#[test]
fn fetching_is_restricted_by_default() {
    let fetch = good(GOOD).fetch;
    assert_eq!((fetch.private_networks, fetch.ports), (PrivateAddresses::Deny, vec![80, 443]));
    assert_eq!((fetch.limits.bytes_max, fetch.limits.redirects_max), (25_165_824, 3));
    assert_eq!(
        (fetch.limits.total_timeout, fetch.limits.idle_timeout),
        (Duration::from_secs(15), Duration::from_secs(5))
    );
    assert_eq!((fetch.text_bytes_max, fetch.concurrent_max), (1_048_576, 16));

    let said = "[fetch]\nports = [8080]\nbytes_max = 5\ntimeout_ms = 900\nredirects_max = 0\ntext_bytes_max = 7\nat_once_max = 2\n";
    let fetch = good(&format!("{GOOD}{said}allow_private = true\n")).fetch;
    assert_eq!((fetch.private_networks, fetch.ports), (PrivateAddresses::AllowAll, vec![8080]));
    assert_eq!((fetch.limits.bytes_max, fetch.limits.redirects_max), (5, 0));
    let times = [
        fetch.limits.total_timeout,
        fetch.limits.first_byte_timeout,
        fetch.limits.connect_timeout,
        fetch.limits.idle_timeout,
    ];
    assert_eq!(times.map(|time| time.as_millis()), [900, 600, 300, 300]);
    assert_eq!((fetch.text_bytes_max, fetch.concurrent_max), (7, 2));
    let these = good(&format!("{GOOD}[fetch]\nallow_private = [\"10.0.0.5\", \"fd00::5\"]\n")).fetch.private_networks;
    assert_eq!(these, PrivateAddresses::AllowListed(vec!["10.0.0.5".parse().unwrap(), "fd00::5".parse().unwrap()]));
    assert_eq!(good(&format!("{GOOD}[fetch]\nallow_private = false\nports = []\n")).fetch.ports, [0; 0]);
}

#[test]
fn limits_and_prices_are_read_exactly() {
    let config = good(&format!(
        "{GOOD}{}",
        r#"
        [limits]
        depth_max = 1
        descendants_max = 2
        invalid_calls_max = 3
        run_tokens_max = 4
        run_cost_max = 0.29
        user_day_tokens_max = 5
        user_day_cost_max = 12
        connections_max = 0
        model_retries_max = 6
        retry_after_max_ms = 7
        [prices."mine/a"]
        input = 2.5
        output = 10
        cached = 0.25
        "#
    ));
    let limits = config.definitions.limits;
    assert_eq!((limits.depth_max, limits.descendants_max, limits.invalid_calls_max), (1, 2, 3));
    assert_eq!((limits.run_tokens_max, limits.user_day_tokens_max), (Some(4), Some(5)));
    assert_eq!(limits.run_cost_max, Some(CostMicros(290_000)), "0.29 has no exact double, and is exact all the same");
    assert_eq!(limits.user_day_cost_max, Some(CostMicros(12_000_000)));
    assert_eq!((limits.steps_max, config.http_limits.connections_max), (50, 1));
    assert_eq!((limits.model_retries_max, limits.retry_after_max_ms), (6, 7));
    let price = config.definitions.prices["mine/a"];
    assert_eq!((price.input, price.output, price.cached, price.cache_write), (2.5, 10.0, Some(0.25), None));
}

#[test]
fn flags_win_over_the_file() {
    let text = format!("{GOOD}\n[server]\nlisten = \"127.0.0.1:1\"\ndata_dir = \"a\"\n");
    let config = good(&text);
    assert_eq!((config.listen.port(), config.data_dir.as_path()), (1, Path::new("a")));
    let (listen, data_dir) = (Some("localhost:2".to_owned()), Some(PathBuf::from("b")));
    let overrides = Overrides { listen, data_dir, ..Overrides::default() };
    let (config, findings) = check_text(&text, overrides);
    assert_eq!(findings, [""; 0]);
    assert_eq!((config.listen.port(), config.data_dir.as_path()), (2, Path::new("b")));
}

#[test]
fn the_digest_depends_on_meaning_and_not_on_formatting() {
    let digest = |text: &str| good(text).definitions.digest;
    let (first, rest) = GOOD.split_once("[tools.get_weather]").unwrap();
    let turned = format!("[tools.get_weather]{rest}\n# the same\n{first}");
    assert_eq!(digest(GOOD), digest(&turned));
    assert_eq!(digest(GOOD), digest(&format!("{GOOD}[server]\nstop_grace_ms = 7\n")));
    assert_ne!(digest(GOOD), digest(&GOOD.replace("1500", "1501")));
    assert_ne!(digest(GOOD), digest(&format!("{GOOD}[limits]\nsteps_max = 7\n")));
    assert_ne!(digest(GOOD), digest(&format!("{GOOD}[prices.\"mine/a\"]\ninput = 1\noutput = 1\n")));
}

#[test]
fn definitions_round_trip_through_serialisation() {
    let tool = "[tools.t]\nkind = \"client\"\nparameters = { type = \"object\", properties = { place = {} } }\n";
    let config = good(&format!("{GOOD}{tool}approval = 'place == \"Oslo\"'\n"));
    let json = serde_json::to_string(&config.definitions).unwrap();
    let mut back: Definitions = serde_json::from_str(&json).unwrap();
    back.digest.clone_from(&config.definitions.digest);
    assert_eq!(back, config.definitions);
}

#[test]
fn without_authentication_the_server_listens_on_loopback_only() {
    let overrides = || Overrides { listen: Some("0.0.0.0:0".to_owned()), ..Overrides::default() };
    let (_, found) = check_text(GOOD, overrides());
    assert!(found.len() == 1 && found[0].contains("would let everybody in"), "{found:?}");
    let (_, found) = check_text(&format!("{GOOD}\n[auth]\nmode = \"keys\"\n"), overrides());
    assert_eq!(found, [""; 0]);
}

/// Settings of a file with these environment variables.
fn under(text: &str, environment: fn(&str) -> Option<String>) -> (Vec<String>, Vec<String>) {
    let overrides = Overrides { env: Some(environment), ..Overrides::default() };
    let (config, findings) = check_text(text, overrides);
    let mut routed: Vec<String> = config.models.provider_names().map(str::to_owned).collect();
    routed.sort_unstable();
    assert_eq!(config.definitions.providers.iter().cloned().collect::<Vec<_>>(), routed, "all can be asked for");
    (routed, findings)
}

#[test]
fn the_environment_enables_providers_that_the_file_does_not_name() {
    let nothing = |_: &str| None;
    assert_eq!(under(GOOD, nothing).0, ["mine"]);
    let key = |name: &str| (name == "OPENAI_API_KEY").then(|| "s3cret-value".to_owned());
    assert_eq!(under(GOOD, key).0, ["mine", "openai", "openai-chat"]);
    let address = |name: &str| (name == "ANTHROPIC_BASE_URL").then(|| "http://127.0.0.1:9".to_owned());
    assert_eq!(under(GOOD, address).0, ["anthropic", "mine"]);
    let empty = |name: &str| (name == "ANTHROPIC_API_KEY").then(String::new);
    assert_eq!(under(GOOD, empty).0, ["mine"]);
    let own = format!("{GOOD}[providers.openai]\nkind = \"openai-chat\"\nbase_url = \"http://127.0.0.1:9/v1\"\n");
    assert_eq!(under(&own, nothing).0, ["mine", "openai"]);
    assert_eq!(under(&own, key).0, ["mine", "openai", "openai-chat"]);
    let agent = format!("{GOOD}[agents.x]\nmodel = \"openai/gpt-x\"\n");
    assert_eq!(under(&agent, key).1, [""; 0]);
    assert!(under(&agent, nothing).1[0].contains("no provider for `openai/gpt-x`"));
    let odd = |name: &str| (name == "OPENAI_BASE_URL").then(|| "localhost".to_owned());
    let (names, findings) = under(GOOD, odd);
    assert_eq!(names, ["mine"]);
    let wanted = "`OPENAI_BASE_URL` in the environment is not a URL such as https://example.com/v1";
    assert_eq!(findings[0], wanted);
}
