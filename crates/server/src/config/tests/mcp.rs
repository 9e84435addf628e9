//! `[mcp.NAME]`.

use super::good;
use model::approval_rule::ApprovalRule;
use model::definition::{
    ApprovalPolicy, CommandTool, McpEndpoint, McpPin, McpProgram, McpScope, McpServer, McpTransport, OnCrash,
};

const PROVIDER: &str = "[providers.p]\nkind = \"scripted\"\nfile = \"plays.toml\"\n";

fn read(keys: &str) -> McpServer {
    let config = good(&format!("{PROVIDER}[mcp.files]\ncommand = [\"sh\", \"serve.sh\"]\n{keys}\n"));
    config.definitions.mcp["files"].clone()
}

#[test]
fn a_server_has_careful_defaults() {
    let command = CommandTool { command: vec!["sh".to_owned(), "serve.sh".to_owned()], ..CommandTool::default() };
    let wanted = McpServer {
        program: McpProgram {
            transport: McpTransport::Command(command),
            scope: McpScope::User,
            start_timeout_ms: 10_000,
        },
        allow: None,
        deny: Vec::new(),
        approval: Default::default(),
        timeout_ms: None,
        output_bytes_max: None,
        required: false,
        idempotent: Vec::new(),
        on_crash: OnCrash::Unknown,
        resources: false,
        prompts: false,
        pin: Default::default(),
    };
    assert_eq!(read(""), wanted);
    assert_eq!(wanted.approval_of("anything"), ApprovalPolicy::Always);
}

#[test]
fn every_key_of_a_server_is_read() {
    let server = read(
        "dir = \"work\"\nenv_pass = [\"PATH\"]\nenv = { LEVEL = \"3\" }\nallow = [\"read_*\"]\ndeny = [\"read_all\"]\n\
         approval = { \"read_*\" = \"never\", read_one = \"size > 1\" }\ntimeout_ms = 5\nstart_timeout_ms = 6\n\
         output_bytes_max = 7\nrequired = true\nscope = \"thread\"\nidempotent = [\"read_*\"]\non_crash = \"ask\"",
    );
    let McpProgram { transport, scope, start_timeout_ms } = server.program.clone();
    let McpTransport::Command(command) = transport else { panic!("it is a program") };
    assert!(command.dir.as_deref().unwrap().ends_with("/work"), "relative to the file: {:?}", command.dir);
    assert_eq!((command.env_pass, command.env["LEVEL"].as_str()), (vec!["PATH".to_owned()], "3"));
    assert_eq!((scope, start_timeout_ms), (McpScope::Thread, 6));
    assert_eq!(["read_one", "read_all", "write"].map(|tool| server.offers_tool(tool)), [true, false, false]);
    assert_eq!(server.approval_of("read_two"), ApprovalPolicy::Never);
    assert_eq!(server.approval_of("read_one"), ApprovalPolicy::When(ApprovalRule::parse("size > 1").unwrap()));
    assert_eq!((server.timeout_ms, server.output_bytes_max, server.required), (Some(5), Some(7), true));
    assert_eq!((server.is_idempotent("read_one"), server.is_idempotent("write")), (true, false));
    assert_eq!(server.on_crash, OnCrash::Ask);
    assert_eq!(server.pin, McpPin::Ask);
    assert_eq!(read("pin = \"off\"").pin, McpPin::Off);
    let hash = format!("sha256:{}", "0a".repeat(32));
    let pinned = [("read_one".to_owned(), hash.clone())].into();
    assert_eq!(read(&format!("pin = {{ read_one = \"{hash}\" }}")).pin, McpPin::Tools(pinned));
    let all = read("resources = true\nprompts = true");
    assert_eq!((all.resources, all.prompts), (true, true));
    assert_eq!(read("approval = \"never\"").approval_of("anything"), ApprovalPolicy::Never);
    assert_eq!(read("scope = \"shared\"").program.scope, McpScope::Shared);
}

#[test]
fn a_server_may_be_a_url_with_headers() {
    let config = good(&format!(
        "{PROVIDER}[mcp.wiki]\nurl = \"http://127.0.0.1:8080/mcp?team=a\"\nheaders = {{ X-Team = \"env:PATH\" }}\n"
    ));
    let wanted = McpEndpoint {
        url: "http://127.0.0.1:8080/mcp?team=a".to_owned(),
        headers: [("X-Team".to_owned(), "env:PATH".to_owned())].into(),
        auth: None,
    };
    assert_eq!(config.definitions.mcp["wiki"].program.transport, McpTransport::Endpoint(wanted));
}

#[test]
fn a_changed_server_is_a_changed_definition() {
    let digest = |keys: &str| {
        let config = good(&format!("{PROVIDER}[mcp.files]\ncommand = \"sh\"\n{keys}\n"));
        (config.definitions.digest.clone(), config.definitions)
    };
    let ((old, before), (new, after)) = (digest(""), digest("required = true"));
    assert_ne!(old, new);
    assert_eq!(crate::config::describe_changes(&before, &after), "mcp ~files");
}
