use super::*;
use futures_util::StreamExt;
use model::item::Gate;
use serde_json::{Value, json};

async fn call(name: &str, arguments: &str) -> ToolOutput {
    let request = ToolRequest {
        user: "local".into(),
        thread: "thr_1".into(),
        task: "task_R".into(),
        call_id: "call_R1".into(),
        attempt: 1,
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        deadline: u64::MAX,
    };
    let mut events: Vec<ToolEvent> = Builtin.call(request).collect().await;
    let Some(ToolEvent::End(output)) = events.pop() else { panic!("no end: {events:?}") };
    assert_eq!(events, []);
    output
}

#[tokio::test]
async fn the_weather_is_words_and_a_picture_for_the_model_and_for_people() {
    let output = call("get_weather", r#"{"location":"Paris, France"}"#).await;
    let output = serde_json::to_value(&output).unwrap();
    let url = output["block_list"][1]["image_url"]["url"].clone();
    let text = r#"{"temperature":"15C","condition":"Sunny"}"#;
    let wanted = json!({
        "message_content": [
            { "type": "text", "text": text },
            { "type": "image_url", "image_url": { "url": url } },
        ],
        "block_list": [
            { "type": "text", "text": text },
            { "type": "image", "image_url": { "url": url } },
        ],
        "summary": null,
        "artifact": null,
        "ui_hints": null,
        "error": null,
    });
    assert_eq!(output, wanted);
    let url = url.as_str().unwrap();
    assert!(url.len() < 2048 && url.starts_with("data:image/png;base64,iVBORw0KGgo"), "{url}");
}

#[tokio::test]
async fn arguments_that_are_none_are_refused_and_the_model_reads_why() {
    let cases = [
        ("", "EOF"),
        ("null", "invalid type: null"),
        ("{}", "missing field `location`"),
        (r#"{"location":3}"#, "invalid type: integer"),
        (r#"{"location":" "}"#, "`location` is empty"),
        (r#"{"location":"Paris","unit":"F"}"#, "unknown field `unit`"),
        (r#"{"location":"Paris"} {}"#, "trailing characters"),
    ];
    for (arguments, why) in cases {
        let output = call("get_weather", arguments).await;
        let error = output.error.unwrap_or_else(|| panic!("{arguments} was taken"));
        assert_eq!(error.code, "invalid_arguments");
        assert!(error.message.starts_with("invalid arguments: ") && error.message.contains(why), "{}", error.message);
        assert_eq!(output.message_content, [model::block::Part::text(&error.message)]);
    }
}

#[tokio::test]
async fn a_tool_that_is_not_there_says_so() {
    let output = call("get_wether", "{}").await;
    let error = output.error.unwrap();
    assert_eq!(
        (error.code.as_str(), error.message.as_str()),
        ("unknown_tool", "there is no builtin tool `get_wether`")
    );
}

#[tokio::test]
async fn every_tool_is_defined_and_runs() {
    for name in names() {
        let tool = definition(name).unwrap();
        assert_eq!(tool.spec.name, *name);
        assert_eq!(tool.spec.parameters["type"], "object");
        assert!(!tool.spec.description.is_empty() && tool.display_name.is_some());
        let error = call(name, "[]").await.error.unwrap();
        assert_eq!(error.code, "invalid_arguments", "{name}");
    }
    assert_eq!(definition("nothing"), None);
}

#[test]
fn the_weather_needs_nobodys_leave_and_may_be_asked_twice() {
    let tool = definition("get_weather").unwrap();
    assert_eq!((tool.gate, tool.idempotent, tool.display_name.as_deref()), (Gate::Never, true, Some("Weather")));
    assert_eq!(tool.spec.parameters["required"], Value::from(vec!["location"]));
}
