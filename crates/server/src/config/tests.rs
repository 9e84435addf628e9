use super::*;

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

fn load_text(text: &str, overrides: Overrides) -> Result<Config, String> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("plays.toml"), PLAYS).unwrap();
    let path = dir.path().join("headwater.toml");
    std::fs::write(&path, text).unwrap();
    let shown = dir.path().display().to_string();
    load(Some(&path), overrides).map_err(|error| error.to_string().replace(&shown, "DIR"))
}

fn refused(text: &str) -> String {
    let error = load_text(text, Overrides::default()).err().unwrap();
    assert!(!error.contains('\n'), "one line: {error}");
    error
}

#[test]
fn the_demo_is_a_config_like_any_other() {
    let demo = load(None, Overrides::default()).unwrap();
    assert!(demo.definitions.agents.contains_key("demo"));
    assert_eq!(demo.listen.to_string(), LISTEN);
    assert_eq!(demo.definitions.digest.len(), 64);
}

#[test]
fn a_file_becomes_definitions() {
    let config = load_text(GOOD, Overrides::default()).ok().unwrap();
    let agent = config.definitions.agents.get("demo").unwrap();
    assert_eq!(agent.models, ["mine/a", "mine/b"]);
    assert_eq!(config.definitions.tools.get("get_weather").unwrap().timeout_ms, Some(1500));
    assert!(config.definitions.providers.contains("mine"));
}

#[test]
fn flags_win_over_the_file() {
    let text = format!("{GOOD}\n[server]\nlisten = \"127.0.0.1:1\"\ndata_dir = \"a\"\n");
    let config = load_text(&text, Overrides::default()).ok().unwrap();
    assert_eq!((config.listen.port(), config.data_dir.as_path()), (1, Path::new("a")));
    let overrides = Overrides { listen: Some("localhost:2".to_owned()), data_dir: Some(PathBuf::from("b")) };
    let config = load_text(&text, overrides).ok().unwrap();
    assert_eq!((config.listen.port(), config.data_dir.as_path()), (2, Path::new("b")));
}

#[test]
fn a_refusal_says_file_line_and_key() {
    let cases = [
        ("[server]\nlisten = 5\n", "DIR/headwater.toml:2: server.listen: "),
        ("[server]\nlisten = \"nowhere\"\n", "DIR/headwater.toml:2: server.listen: not an address"),
        ("[server]\nlistn = \"x\"\n", "DIR/headwater.toml:2: server.listn: unknown field `listn`"),
        ("[serv]\n", "DIR/headwater.toml:1: serv: unknown field `serv`"),
        ("x = \n", "DIR/headwater.toml:1: x: "),
        ("[auth]\nmode = \"jwt\"\n", "DIR/headwater.toml:2: auth.mode: `jwt` is not supported yet"),
        ("[auth]\nmode = \"magic\"\n", "DIR/headwater.toml:2: auth.mode: there is no mode `magic`"),
        ("[limits]\nsteps_max = -1\n", "DIR/headwater.toml:2: limits.steps_max: "),
        (
            "[tools.t]\nkind = \"http\"\nurl = \"http://x\"\n",
            "DIR/headwater.toml:2: tools.t.kind: the kind `http` is not supported yet",
        ),
        (
            "[tools.t]\nkind = \"builtin\"\n",
            "DIR/headwater.toml:1: tools.t: there is no builtin tool `t`; there is `get_weather`",
        ),
        (
            "[tools.get_weather]\nkind = \"builtin\"\nurl = \"x\"\n",
            "DIR/headwater.toml:3: tools.get_weather.url: has no place",
        ),
        (
            "[providers.p]\nkind = \"openai-chat\"\n",
            "DIR/headwater.toml:2: providers.p.kind: the kind `openai-chat` is not supported yet",
        ),
        ("[providers.p]\nkind = \"scripted\"\n", "DIR/headwater.toml:1: providers.p: `file` is missing"),
        ("[providers.p]\nkind = \"scripted\"\nfile = \"none.toml\"\n", "DIR/none.toml: "),
        ("[server]\norigins = [\"*\"]\n", "DIR/headwater.toml:2: server.origins: `*` is not an origin"),
        ("[agents.\"a/b\"]\nmodel = \"x/y\"\n", "DIR/headwater.toml:1: agents.\"a/b\": a name has"),
    ];
    for (text, wanted) in cases {
        let error = refused(text);
        assert!(error.starts_with(wanted), "\n{error}\n{wanted}");
    }
}

#[test]
fn a_name_that_leads_nowhere_is_refused_with_what_there_is() {
    let error = refused(&GOOD.replace("tools = [\"get_weather\"]", "tools = [\"lookup\"]"));
    let wanted = "DIR/headwater.toml:4: agents.demo.tools: agent `demo` has the tool `lookup`, which is not defined; there is `get_weather`";
    assert_eq!(error, wanted);
    let error = refused(&GOOD.replace("mine/b", "yours/b"));
    assert!(error.contains("agent `demo` asks `yours/b`") && error.contains("`mine`"), "{error}");
}

#[test]
fn without_authentication_only_this_machine_is_listened_to() {
    let overrides = || Overrides { listen: Some("0.0.0.0:0".to_owned()), ..Overrides::default() };
    let error = load_text(GOOD, overrides()).err().unwrap();
    assert!(error.contains("would let everybody in"), "{error}");
    assert!(load_text(&format!("{GOOD}\n[auth]\nmode = \"keys\"\n"), overrides()).is_ok());
}
