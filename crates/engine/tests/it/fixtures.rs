//! The agents and tools of these tests, and the script of the model.

use model::content::{ContentPart, FileRef};
use model::definition::ToolSpec;
use model::definition::{
    Agent, ApprovalPolicy, CompactionPolicy, Definitions, Handoff, HandoffHistory, HistoryWindow, InputHook, Tool,
    ToolExecutor,
};
use model::event::ClientTool;
use serde_json::json;

pub(crate) const SCENARIOS: &str = r#"
[[scenario]]
match = 'Sum up the conversation'
[[scenario.turn]]
steps = [{ text = ["THE ", "SUMMARY"] }]
usage = { input_tokens = 30, output_tokens = 2 }

[[scenario]]
match = '\bstory (?<n>\d+)\b'
[[scenario.turn]]
steps = [{ text = "w{i} ", repeat = "{n}" }]

[[scenario]]
match = '\bhang\b'
[[scenario.turn]]
steps = [{ text = "Once upon " }, { pause_ms = 3600000 }, { text = "a time" }]

[[scenario]]
match = '\bweather\b'
[[scenario.turn]]
steps = [{ reasoning = "I look. " }, { call = "get_weather", arguments = '{"location":"Paris, France"}' }]
[[scenario.turn]]
steps = [{ text = ["Sunny", "."] }]

[[scenario]]
match = '\btrade\b'
[[scenario.turn]]
steps = [{ text = "I will. " }, { call = "trade", arguments = '{"n":1}' }]
[[scenario.turn]]
steps = [{ text = "Done." }]

[[scenario]]
match = '\btwo trades\b'
[[scenario.turn]]
steps = [{ call = "trade", arguments = '{"n":1}' }, { call = "other_trade", arguments = '{"n":2}' }]
[[scenario.turn]]
steps = [{ text = "Both done." }]

[[scenario]]
match = '\bagain and again\b'
[[scenario.turn]]
steps = [{ call = "trade", arguments = '{"n":1}' }]
[[scenario.turn]]
steps = [{ call = "trade", arguments = '{"n":2}' }]
[[scenario.turn]]
steps = [{ text = "Done." }]

[[scenario]]
match = '\bheld\b'
[[scenario.turn]]
steps = [{ call = "hold" }]
[[scenario.turn]]
steps = [{ text = "Let go." }]

[[scenario]]
match = '\binterview\b'
[[scenario.turn]]
steps = [{ call = "interview" }]
[[scenario.turn]]
steps = [{ text = "Thank you." }]

[[scenario]]
match = '\bsurvey\b'
[[scenario.turn]]
steps = [{ call = "survey", arguments = '{"n":1}' }]
[[scenario.turn]]
steps = [{ text = "Thank you." }]

[[scenario]]
match = '\bask or hold\b'
[[scenario.turn]]
steps = [{ call = "trade", arguments = '{"n":1}' }, { call = "hold" }]
[[scenario.turn]]
steps = [{ text = "Done." }]

[[scenario]]
match = '\bhelp\b'
[[scenario.turn]]
steps = [{ call = "helper", arguments = '{"prompt":"weather"}' }]
[[scenario.turn]]
steps = [{ text = "Helped." }]

[[scenario]]
match = '\btwins\b'
[[scenario.turn]]
steps = [
  { call = "helper", arguments = '{"prompt":"weather"}' },
  { call = "broker", arguments = '{"prompt":"trade"}' },
]
[[scenario.turn]]
steps = [{ text = "Both helped." }]

[[scenario]]
match = '\bparallel\b'
[[scenario.turn]]
steps = [{ call = "tool_a" }, { call = "tool_b" }, { call = "tool_c" }]
[[scenario.turn]]
steps = [{ text = "All three." }]

[[scenario]]
match = '\bhandoff\b'
[[scenario.turn]]
steps = [{ call = "transfer_to_specialist" }]
[[scenario.turn]]
steps = [{ text = "The specialist speaks." }]

[[scenario]]
match = '\bone hangs\b'
[[scenario.turn]]
steps = [
  { call = "helper", arguments = '{"prompt":"hang"}' },
  { call = "helper", arguments = '{"prompt":"weather"}' },
]
[[scenario.turn]]
steps = [{ text = "One helped." }]

[[scenario]]
match = '\bclient beside a tool\b'
[[scenario.turn]]
steps = [{ call = "pick_a" }, { call = "pick_b" }, { call = "hold" }]
[[scenario.turn]]
steps = [{ text = "The client chose." }]

[[scenario]]
match = '\bmany client\b'
[[scenario.turn]]
steps = [
  { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" },
  { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" },
  { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" },
  { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" },
  { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" }, { call = "pick_a" },
]
[[scenario.turn]]
steps = [{ text = "The client chose." }]

[[scenario]]
match = '\bclient\b'
[[scenario.turn]]
steps = [{ call = "pick_a" }, { call = "pick_b" }]
[[scenario.turn]]
steps = [{ text = "The client chose." }]

[[scenario]]
[[scenario.turn]]
steps = [{ text = "Hi." }]
usage = { input_tokens = 10, output_tokens = 5 }
"#;

fn agent(name: &str, tools: &[&str]) -> Agent {
    Agent {
        name: name.to_owned(),
        description: format!("Does what {name} does."),
        models: vec![format!("scripted/{name}")],
        tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
        ..Agent::default()
    }
}

fn tool(name: &str) -> Tool {
    let parameters = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let spec = ToolSpec { name: name.to_owned(), description: String::new(), parameters };
    Tool::new(spec, ToolExecutor::Builtin)
}

fn approval_tool(name: &str) -> Tool {
    Tool { approval: ApprovalPolicy::Always, ..tool(name) }
}

/// The tools that the caller of `client` declares.
pub(crate) fn client_tools() -> Vec<ClientTool> {
    let declared = |name: &str| ClientTool {
        name: name.to_owned(),
        description: String::new(),
        parameters: json!({"type": "object"}),
    };
    vec![declared("pick_a"), declared("pick_b")]
}

/// All agents and tools of these tests. Only `get_weather` may be started again after a crash.
pub(crate) fn definitions() -> Definitions {
    let all = [
        "get_weather",
        "trade",
        "other_trade",
        "hold",
        "interview",
        "survey",
        "tool_a",
        "tool_b",
        "tool_c",
        "helper",
        "broker",
    ];
    let handoffs = vec![Handoff { agent: "specialist".to_owned(), history: HandoffHistory::All }];
    let hook = InputHook { url: None, command: vec!["hook".to_owned()], timeout_ms: 1_000 };
    let agents = [
        Agent { handoffs, ..agent("demo", &all) },
        agent("helper", &["get_weather"]),
        agent("broker", &["trade"]),
        agent("specialist", &[]),
        Agent { history: HistoryWindow { turns: Some(1), tokens: None }, ..agent("forgetful", &[]) },
        Agent { models: vec!["silent/model".to_owned()], ..agent("silent", &[]) },
        Agent { input_hook: Some(hook), ..agent("hooked", &all) },
        Agent { compaction: Some(compaction("scripted/short")), ..agent("compact", &all) },
        Agent { compaction: Some(compaction("silent/model")), ..agent("slow_to_compact", &all) },
        Agent { compaction: Some(compaction("nobody/model")), ..agent("bad_to_compact", &all) },
    ];
    let tools = [
        Tool { idempotent: true, ..tool("get_weather") },
        approval_tool("trade"),
        approval_tool("other_trade"),
        tool("hold"),
        tool("interview"),
        tool("survey"),
        tool("tool_a"),
        tool("tool_b"),
        tool("tool_c"),
    ];
    Definitions {
        agents: agents.into_iter().map(|agent| (agent.name.clone(), agent)).collect(),
        tools: tools.into_iter().map(|tool| (tool.spec.name.clone(), tool)).collect(),
        providers: ["scripted".to_owned()].into(),
        digest: "first".to_owned(),
        ..Definitions::default()
    }
}

/// After every second run, all runs but the last one are compacted.
fn compaction(model: &str) -> CompactionPolicy {
    CompactionPolicy { after_tokens: 0, keep_turns: 1, model: Some(model.to_owned()) }
}

/// The same definitions with one tool replaced.
pub(crate) fn with_tool(mut definitions: Definitions, name: &str, change: impl FnOnce(&mut Tool)) -> Definitions {
    change(definitions.tools.get_mut(name).expect("there is such a tool"));
    definitions
}

/// The same definitions with one agent replaced.
pub(crate) fn with_agent(mut definitions: Definitions, name: &str, change: impl FnOnce(&mut Agent)) -> Definitions {
    change(definitions.agents.get_mut(name).expect("there is such an agent"));
    definitions
}

/// A message that links every URL in it.
pub(crate) fn parts_with_links(text: &str) -> Vec<ContentPart> {
    let urls = text.split_whitespace().filter(|word| word.starts_with("https://"));
    let file = |url: &str| ContentPart::File { file: FileRef { url: Some(url.to_owned()), ..FileRef::default() } };
    text_parts(text).into_iter().chain(urls.map(file)).collect()
}

pub(crate) fn text_parts(text: &str) -> Vec<ContentPart> {
    vec![ContentPart::text(text)]
}
