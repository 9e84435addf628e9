//! Invalid scenario files and their error messages.

use providers::scripted::{IMAGE_URL_BYTES_MAX, SCENARIO_FILE_BYTES_MAX, ScenarioError, Scenarios};
use std::path::Path;

fn refused(text: &str) -> String {
    match Scenarios::parse(text, "play.toml") {
        Ok(_) => panic!("was read:\n{text}"),
        Err(error) => error.to_string(),
    }
}

/// A file whose line 4 is this step: scenario 1, turn 1, step 2.
fn refused_step(step: &str) -> String {
    let text = format!("[[scenario]]\nmatch = '(?<n>x)'\n[[scenario.turn]]\nsteps = [{{ text = \"a\" }}, \n{step}]");
    let message = refused(&text);
    let Some(rest) = message.strip_prefix("play.toml:5: scenario 1, turn 1, step 2: ") else { panic!("{message}") };
    rest.to_owned()
}

#[test]
fn invalid_scenario_files_are_refused() {
    let turn = "[[scenario.turn]]\nsteps = []\n";
    let cases = [
        ("[[scenario]\n".to_owned(), "play.toml:1: "),
        ("\n\nscenario = [\n".to_owned(), "play.toml:"),
        (String::new(), "play.toml:1: `scenario` is missing"),
        ("scenario = 1".to_owned(), "play.toml:1: `scenario` must be a list, not a whole number"),
        ("scenario = [1]".to_owned(), "play.toml:1: scenario 1: `scenario` must be a table, not a whole number"),
        ("[scenario]\n".to_owned(), "play.toml:1: `scenario` must be a list, not a table"),
        ("[[scenarios]]\n".to_owned(), "play.toml:1: unknown key `scenarios`; expected `scenario`"),
        ("# x\n[[scenario]]\n".to_owned(), "play.toml:2: scenario 1: `turn` is missing"),
        ("[[scenario]]\nturn = []\n".to_owned(), "play.toml:1: scenario 1: `turn` must not be empty"),
        ("[[scenario]]\n[[scenario.turn]]\n".to_owned(), "play.toml:2: scenario 1, turn 1: `steps` is missing"),
        (
            format!("[[scenario]]\nmatch = 'a'\n{turn}[[scenario]]\nmacth = 'b'\n{turn}"),
            "play.toml:6: scenario 2: unknown key `macth`; expected `model`, `match`, `image`, `defaults` or `turn`",
        ),
        (
            format!("[[scenario]]\n{turn}[[scenario.turn]]\nstep = []\n"),
            "play.toml:5: scenario 1, turn 2: unknown key `step`; expected `when`, `steps`, `usage` or \
             `stop`",
        ),
        (
            format!("[[scenario]]\n{turn}[[scenario]]\n{turn}"),
            "play.toml:4: scenario 2: never played: scenario 1 has no `match`, so it always comes first",
        ),
        (
            format!("[[scenario]]\n{turn}stop = \"tool_calls\"\n"),
            "play.toml:4: scenario 1, turn 1: `stop` is `tool_calls`; expected `stop`, `max_tokens` or `content_filter`",
        ),
        (
            format!("[[scenario]]\n{turn}usage = {{ tokens = 1 }}\n"),
            "play.toml:4: scenario 1, turn 1: unknown key `tokens`; expected `input_tokens`, `cached_tokens`, \
             `cache_write_tokens`, `output_tokens` or `reasoning_tokens`",
        ),
        (
            format!("[[scenario]]\n{turn}usage = {{ input_tokens = -1 }}\n"),
            "play.toml:4: scenario 1, turn 1: `input_tokens` must be a whole number from 0 on, not -1",
        ),
    ];
    for (text, wanted) in cases {
        let message = refused(&text);
        let same = if wanted.ends_with([' ', ':']) { message.starts_with(wanted) } else { message == wanted };
        assert!(same, "{text}\n  gave   {message}\n  wanted {wanted}");
    }
}

#[test]
fn invalid_matches_and_defaults_are_refused() {
    let scenario = |lines: &str| refused(&format!("[[scenario]]\n{lines}\n[[scenario.turn]]\nsteps = []"));
    assert_eq!(scenario("match = 1"), "play.toml:2: scenario 1: `match` must be a text, not a whole number");
    let bad = scenario("match = '('");
    assert!(
        bad.starts_with("play.toml:2: scenario 1: `match` is not a regular expression: regex parse error:"),
        "{bad}"
    );
    let huge = scenario("match = '(a{1000}){1000}'");
    assert!(huge.contains("exceeds size limit"), "{huge}");
    for name in ["i", "ref", "tool", "result", "clock_us"] {
        let taken = format!("play.toml:2: scenario 1: `match` captures `{name}`, which is reserved");
        assert_eq!(scenario(&format!("match = '(?<{name}>x)'")), taken);
    }
    assert_eq!(
        scenario("match = '(?<n>x)'\ndefaults = { m = 1 }"),
        "play.toml:3: scenario 1: `defaults` names `m`, which `match` does not capture"
    );
    assert_eq!(
        scenario("match = '(?<n>x)'\ndefaults = { n = true }"),
        "play.toml:3: scenario 1: `n` must be a text or a whole number, not `true` or `false`"
    );
}

#[test]
fn invalid_steps_are_refused() {
    const KINDS: &str = "a step has exactly one of `text`, `reasoning`, `call`, `hosted`, `approval`, `computer`, `pause_ms` or `error`";
    let cases = [
        ("{}", format!("{KINDS}; this one has none")),
        (r#"{ txt = "a" }"#, format!("{KINDS}; this one has `txt`")),
        (r#"{ text = "a", call = "b" }"#, format!("{KINDS}; this one has `call` and `text`")),
        ("3", "`steps` must be a table, not a whole number".to_owned()),
        ("{ text = 3 }", "`text` must be a text or a list of texts, not a whole number".to_owned()),
        (r#"{ text = ["a", 3] }"#, "`text` must be a text, not a whole number".to_owned()),
        ("{ text = [] }", "`text` must not be empty".to_owned()),
        (r#"{ text = "a", evry_ms = 3 }"#, "unknown key `evry_ms`; expected `text`, `repeat` or `every_ms`".to_owned()),
        (
            r#"{ call = "a", repeat = 3 }"#,
            "unknown key `repeat`; expected `call`, `arguments` or `every_ms`".to_owned(),
        ),
        (r#"{ call = "" }"#, "`call` must not be empty".to_owned()),
        (r#"{ approval = "a" }"#, "`server` is missing".to_owned()),
        (r#"{ approval = "", server = "s" }"#, "`approval` must not be empty".to_owned()),
        (r#"{ computer = [] }"#, "`computer` must not be empty".to_owned()),
        (
            r#"{ text = "a", repeat = true }"#,
            "`repeat` must be a whole number or one placeholder, not `true` or `false`".to_owned(),
        ),
        (
            r#"{ text = "a", repeat = "{n} times" }"#,
            "`repeat` must be a whole number or one placeholder, not `{n} times`".to_owned(),
        ),
        (
            r#"{ text = "a", repeat = "{m}" }"#,
            "`repeat` must be a whole number or one placeholder, not `{m}`".to_owned(),
        ),
        (r#"{ text = "a", repeat = 1000001 }"#, "`repeat` exceeds the maximum of 1000000".to_owned()),
        (r#"{ text = "a", repeat = -1 }"#, "`repeat` must be a whole number from 0 on, not -1".to_owned()),
        ("{ pause_ms = 3600001 }", "`pause_ms` exceeds the maximum of 3600000".to_owned()),
        ("{ pause_ms = 1.5 }", "`pause_ms` must be a whole number or one placeholder, not a fraction".to_owned()),
        (r#"{ error = "x" }"#, "`error` must be a table, not a text".to_owned()),
        ("{ error = {} }", "`code` is missing".to_owned()),
        (r#"{ error = { code = "x" } }"#, "`message` is missing".to_owned()),
        (
            r#"{ error = { code = "x", message = "m", retryable = "yes" } }"#,
            "`retryable` must be `true` or `false`, not a text".to_owned(),
        ),
        (
            r#"{ error = { code = "x", message = "m", retry = true } }"#,
            "unknown key `retry`; expected `code`, `message`, `retryable`, `retry_after_ms` or `times`".to_owned(),
        ),
    ];
    for (step, wanted) in cases {
        assert_eq!(refused_step(step), wanted, "{step}");
    }
    let long = format!("{{ hosted = \"h\", images = [\"{}\"] }}", "x".repeat(IMAGE_URL_BYTES_MAX + 1));
    assert_eq!(refused_step(&long), "`images` exceeds the maximum of 131072");
}

#[test]
fn invalid_models_are_refused() {
    let scenario = |model: &str| refused(&format!("[[scenario]]\nmodel = {model}\n[[scenario.turn]]\nsteps = []"));
    let place = "play.toml:2: scenario 1: `model`";
    assert_eq!(scenario("1"), format!("{place} must be a text or a list of texts, not a whole number"));
    for empty in ["[]", "''", "['a', '']"] {
        assert_eq!(scenario(empty), format!("{place} must not be empty"), "{empty}");
    }
}

#[test]
fn an_unreachable_scenario_is_refused() {
    let file = |scenarios: &[&str]| {
        let scenario = |keys: &&str| format!("[[scenario]]\n{keys}\n[[scenario.turn]]\nsteps = []\n");
        scenarios.iter().map(scenario).collect::<String>()
    };
    let (all, a, b, ab) = ("", "model = 'a'", "model = 'b'", "model = ['a', 'b']");
    for (scenarios, number, by) in [
        (vec![all, a], 2, 1),
        (vec![a, "model = 'a'\nmatch = 'x'"], 2, 1),
        (vec![b, a, all, a], 4, 2),
        (vec![ab, b], 2, 1),
        (vec![a, b, ab], 3, 2),
        (vec!["match = 'x'", all, "match = 'y'"], 3, 2),
    ] {
        let message = refused(&file(&scenarios));
        let wanted =
            format!(": scenario {number}: never played: scenario {by} has no `match`, so it always comes first");
        assert!(message.ends_with(&wanted), "{scenarios:?}\n{message}");
    }
    for scenarios in [vec![a, b, all], vec![a, ab], vec![a, "match = 'x'", all], vec!["model = 'a'\nmatch = 'x'", a]] {
        assert!(Scenarios::parse(&file(&scenarios), "play.toml").is_ok(), "{scenarios:?}");
    }
}

#[test]
fn invalid_conditions_are_refused() {
    let last = "[[scenario.turn]]\nsteps = []";
    let file = |when: &str| refused(&format!("[[scenario]]\n[[scenario.turn]]\nwhen = {when}\nsteps = []\n{last}"));
    let cases = [
        ("1", "`when` must be a table, not a whole number"),
        ("{}", "`when` is empty; expected `status` and `tool`"),
        ("{ state = 'failed' }", "unknown key `state`; expected `status` or `tool`"),
        ("{ tool = 'pick' }", "`tool` must be `true` or `false`, not a text"),
        ("{ status = true }", "`status` must be a text or a list of texts, not `true` or `false`"),
        ("{ status = [] }", "`status` must not be empty"),
        (
            "{ status = ['failed', 'ok'] }",
            "`status` is `ok`; expected `completed`, `failed`, `rejected`, `incomplete` or `unknown`",
        ),
    ];
    for (when, wanted) in cases {
        assert_eq!(file(when), format!("play.toml:3: scenario 1, turn 1: {wanted}"), "{when}");
    }
    let turn = "[[scenario.turn]]\nwhen = { tool = true }\nsteps = []\n";
    assert_eq!(
        refused(&format!("[[scenario]]\n{last}\n{turn}{turn}")),
        "play.toml:7: scenario 1, turn 3: a turn with `when` needs one without it after it, for when it does not hold"
    );
}

#[test]
fn nothing_follows_an_error() {
    let error = r#"{ error = { code = "x", message = "m" } }"#;
    let file = |rest: &str| refused(&format!("[[scenario]]\n[[scenario.turn]]\nsteps = [{error}{rest}"));
    let after = "play.toml:3: scenario 1, turn 1, step 2: nothing follows an `error`: it ends the turn";
    assert_eq!(file(", { pause_ms = 1 }]"), after);
    let stop = "play.toml:4: scenario 1, turn 1: a turn that ends with an `error` has no `stop`";
    assert_eq!(file("]\nstop = \"stop\""), stop);
}

#[test]
fn a_default_that_is_used_as_a_number_must_be_one() {
    let file = |default: &str| {
        refused(&format!(
            "[[scenario]]\nmatch = '(?<n>x)'\ndefaults = {{ n = {default} }}\n[[scenario.turn]]\n\
             steps = [{{ text = \"a\", repeat = \"{{n}}\" }}]"
        ))
    };
    let place = "play.toml:5: scenario 1, turn 1, step 1: `defaults.n`";
    assert_eq!(file("\"many\""), format!("{place} must be a whole number, not `many`"));
    assert_eq!(file("1000001"), format!("{place} exceeds the maximum of 1000000"));
}

#[test]
fn an_oversized_file_is_refused() {
    let long = format!("#{}", " ".repeat(usize::try_from(SCENARIO_FILE_BYTES_MAX).unwrap()));
    assert_eq!(refused(&long), "play.toml: longer than 4194304 bytes");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.toml");
    std::fs::write(&path, &long).unwrap();
    assert!(matches!(Scenarios::load(&path), Err(ScenarioError::TooLong { .. })));
}

#[test]
fn a_file_is_loaded_by_its_path_and_errors_name_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scenarios.toml");
    std::fs::write(&path, "[[scenario]]\n[[scenario.turn]]\nsteps = []").unwrap();
    assert!(Scenarios::load(&path).is_ok());
    std::fs::write(&path, "scenario = 3").unwrap();
    let wrong = Scenarios::load(&path).unwrap_err().to_string();
    assert_eq!(wrong, format!("{}:1: `scenario` must be a list, not a whole number", path.display()));
    let missing = Scenarios::load(Path::new("nowhere/scenarios.toml")).unwrap_err().to_string();
    assert!(missing.starts_with("nowhere/scenarios.toml: "), "{missing}");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(Scenarios::load(&path), Err(ScenarioError::Read { .. })));
}
