//! Events in, text out.

use super::*;
use serde_json::{Value, json};

fn renderer(palette: Palette) -> Renderer {
    Renderer::new(TaskId::from("task_1"), palette)
}

fn event(value: &Value) -> Event {
    let event = Event::decode(value.to_string().as_bytes());
    assert!(!matches!(event, Event::Unknown(_)), "not an event: {value}");
    event
}

fn render_all(palette: Palette, events: impl IntoIterator<Item = Value>) -> String {
    let mut renderer = renderer(palette);
    let mut out: String = events.into_iter().map(|value| renderer.render(&event(&value))).collect();
    out.push_str(&renderer.finish());
    out
}

fn of(kind: &str, item: &str, rest: &Value) -> Value {
    let mut value = json!({"type": kind, "task_id": "task_1", "item_id": item, "output_index": 0, "block_index": 0});
    value.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    value
}

fn delta(text: &str) -> Value {
    of("task.text.delta", "msg_1", &json!({"delta": text}))
}

fn thought(part: u32, text: &str) -> Value {
    of("task.reasoning_summary_text.delta", "rs_1", &json!({"summary_index": part, "delta": text}))
}

fn weather() -> Vec<Value> {
    let call = json!({"type": "tool_call", "id": "fc_2", "call_id": "call_2", "name": "get_weather", "arguments": "{\"location\":\n\"Paris\"}"});
    let done = |part: u32, text: &str| {
        let item = json!({"type": "text", "text": text});
        of("task.reasoning_summary_item.done", "rs_1", &json!({"summary_index": part, "item": item}))
    };
    let text = json!({"type": "text", "text": "{\"temperature\":\"15C\"}", "id": 1});
    let image = json!({"type": "image", "image_url": {"url": "data:image/png;base64,AAAA"}, "id": 1});
    let whole = json!({"type": "text", "text": "It is sunny.[^1]"});
    vec![
        thought(0, "Thinking about "),
        thought(0, "Paris."),
        done(0, "Thinking about Paris."),
        thought(1, "Decided."),
        done(1, "Decided."),
        of("task.output_item.done", "", &json!({"output_index": 1, "item": call})),
        of("task.text.done", "fco_2", &json!({"output_index": 2, "item": text})),
        of("task.image.done", "fco_2", &json!({"output_index": 2, "block_index": 1, "item": image})),
        of("task.text.delta", "msg_3", &json!({"output_index": 3, "delta": "It is "})),
        of("task.text.delta", "msg_3", &json!({"output_index": 3, "delta": "sunny.[^1]"})),
        of("task.text.done", "msg_3", &json!({"output_index": 3, "item": whole})),
    ]
}

#[test]
fn a_run_reads_from_top_to_bottom() {
    let plain = "Thinking about Paris.\n\
                 Decided.\n\
                 → get_weather {\"location\": \"Paris\"}\n\
                 ← {\"temperature\":\"15C\"}\n\
                 ← [image image/png, 4 bytes encoded]\n\
                 It is sunny.[^1]\n";
    assert_eq!(render_all(Palette::Plain, weather()), plain);
}

#[test]
fn colours_do_not_change_the_text() {
    let coloured = render_all(Palette::Colors, weather());
    assert!(coloured.starts_with("\u{1b}[2mThinking about \u{1b}[0m\u{1b}[2mParis.\u{1b}[0m\n"), "{coloured:?}");
    assert!(coloured.contains("→ \u{1b}[36mget_weather"), "{coloured:?}");
    assert!(coloured.ends_with("\nIt is sunny.[^1]\n"), "{coloured:?}");
}

#[test]
fn streamed_text_is_not_repeated_at_its_end() {
    let whole = json!({"type": "text", "text": "Once upon"});
    let done = of("task.text.done", "msg_1", &json!({"item": whole}));
    assert_eq!(render_all(Palette::Plain, [delta("Once "), delta("upon"), done.clone()]), "Once upon\n");
    assert_eq!(render_all(Palette::Plain, [done]), "Once upon\n");
    assert_eq!(render_all(Palette::Plain, [delta("Once ")]), "Once \n");
}

#[test]
fn other_events_are_lines_of_their_own() {
    let progress =
        json!({"type": "task.tool.progress", "task_id": "task_1", "call_id": "call_2", "message": "half\nway"});
    assert_eq!(render_all(Palette::Plain, [delta("Once"), progress, delta(" upon")]), "Once\n· half way\n upon\n");
}

#[test]
fn interleaved_texts_do_not_share_a_line() {
    let other = json!({"output_index": 1, "delta": "B"});
    let events = [delta("A1"), of("task.text.delta", "msg_2", &other), delta("A2")];
    assert_eq!(render_all(Palette::Plain, events), "A1\nB\nA2\n");
}

#[test]
fn a_sub_agent_is_indented() {
    let spec = json!({"thread_id": "thr_1", "agent": "a", "model": "m", "input": [], "parent_task_id": "task_1"});
    let created = json!({"type": "task.created", "task_id": "call_2", "task": spec});
    let words = json!({"task_id": "call_2", "delta": "one\ntwo"});
    assert_eq!(render_all(Palette::Plain, [created, of("task.text.delta", "msg_5", &words)]), "  one\n  two\n");
}

#[test]
fn model_output_cannot_contain_terminal_escapes() {
    for palette in [Palette::Plain, Palette::Colors] {
        let said = "a\u{1b}]0;owned\u{7}b\u{9b}31mc\rd\u{8}\u{7f}\u{0}\te\nf";
        let text = render_all(palette, [delta(said), delta("\u{1b}"), delta("[2J")]);
        assert_eq!(text, "a\\u{1b}]0;owned\\u{7}b\\u{9b}31mc\\u{d}d\\u{8}\\u{7f}\\u{0}\te\nf\\u{1b}[2J\n");
    }
    let call =
        json!({"type": "tool_call", "id": "fc_2", "call_id": "call_2", "name": "x\u{1b}[A", "arguments": "{}\u{9d}"});
    let line = render_all(Palette::Plain, [of("task.output_item.done", "", &json!({"item": call}))]);
    assert_eq!(line, "→ x\\u{1b}[A {}\\u{9d}\n");
}

#[test]
fn a_raw_line_is_one_line_and_the_same_json() {
    let line = raw_line("{\"a\":\"\u{9b}x\u{7f}\"}");
    assert_eq!(line, "{\"a\":\"\\u009bx\\u007f\"}\n");
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), json!({"a": "\u{9b}x\u{7f}"}));
}

#[test]
fn only_the_terminal_event_of_the_task_itself_ends_the_output() {
    let end = |kind: &str, task: &str| {
        let rest = json!({"usage": {}, "duration_ms": 1250, "mode": "immediate", "by": "user"});
        let mut value = of(kind, "", &rest);
        value["task_id"] = json!(task);
        event(&value)
    };
    assert_eq!(renderer(Palette::Plain).terminal_status(&end("task.completed", "call_2")), None);
    assert_eq!(renderer(Palette::Plain).terminal_status(&end("task.completed", "task_1")), Some(TaskStatus::Completed));
    assert_eq!(renderer(Palette::Plain).terminal_status(&end("task.cancelled", "task_1")), Some(TaskStatus::Cancelled));
    assert_eq!(Renderer::summary_line(&end("task.cancelled", "task_1")), "cancelled after 1.2 s, 0 output tokens");
}

#[test]
fn an_ended_task_has_a_final_line() {
    let message = |text: &str| json!({"type": "message", "id": "msg_1", "role": "assistant", "block_list": [{"type": "text", "text": text}]});
    let object = json!({
        "task_id": "task_1", "thread_id": "thr_1", "agent": "demo", "status": "completed",
        "output": [message("first"), message("last\u{1b}")], "pending": [], "usage": {}, "error": null, "reason": null,
        "metadata": {}, "created_at": 1, "ended_at": 2, "seq": 9,
    });
    assert_eq!(last_message_text(&serde_json::from_value(object).unwrap()), "last\\u{1b}\n");
}
