//! Small values and the distinctions that they must make.

use model::approval_rule::ApprovalRule;
use model::content::{
    ContentPart, FileRef, ImageBlock, ImageDetail, ImageDetailError, ImageUrl, ImageUrlError, TextBlock,
};
use model::cursor::{Cursor, CursorError};
use model::definition::{Agent, Definitions, Price, ReferencePolicy, ToolSearchPolicy, handoff_tool_name};
use model::history::HistoryEntry;
use model::item::ResultStatus;
use model::item::{Block, plain_text};
use model::limits::{
    DELTA_BYTES_MAX, DONE_REPEAT_BYTES_MAX, RECORD_BYTES_MAX, RunLimits, UNDURABLE_BYTES_MAX, UNDURABLE_RECORDS_MAX,
    WRITE_BYTES_MAX,
};
use model::record::{PrivatePayload, RecordDraft};
use model::task::TaskStatus;
use model::usage::Usage;
use model::{Epoch, Event, Record, Seq, TaskId, ThreadId};
use serde_json::json;

fn file(name: &str, path: &str, url: &str) -> FileRef {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    FileRef { name: Some(name.to_owned()), path: text(path), url: text(url), bucket: None, size: None }
}

#[test]
fn a_part_has_the_url_of_its_image_or_file() {
    let picture = ImageUrl::parse("https://x/a.png".to_owned()).unwrap();
    assert_eq!(ContentPart::ImageUrl { image_url: picture, id: None }.url(), Some("https://x/a.png"));
    assert_eq!(ContentPart::File { file: file("", "", "/v1/blobs/ab") }.url(), Some("/v1/blobs/ab"));
    assert_eq!(ContentPart::File { file: file("", "a/b", "") }.url(), None);
    assert_eq!(ContentPart::text("https://x").url(), None);
    for url in ["http://x", "data:image/png;base64,AA", "/v1/blobs/ab"] {
        assert_eq!(ImageUrl::parse(url.to_owned()), Ok(ImageUrl::new(url)));
    }
    for url in ["", "ftp://x", "data:text/html,x", "/v1/tasks"] {
        assert_eq!(ImageUrl::parse(url.to_owned()), Err(ImageUrlError), "{url}");
    }
}

#[test]
fn the_detail_of_an_image_is_kept_and_an_unknown_one_is_ignored() {
    let read = |json: &str| serde_json::from_str::<ImageUrl>(json).unwrap();
    for detail in [ImageDetail::Low, ImageDetail::High, ImageDetail::Original] {
        let image = ImageUrl { url: "https://x".to_owned(), detail: Some(detail) };
        let json = serde_json::to_string(&image).unwrap();
        assert_eq!(json, format!(r#"{{"url":"https://x","detail":"{}"}}"#, detail.as_str()));
        assert_eq!((read(&json), ImageDetail::parse(detail.as_str())), (image, Ok(Some(detail))));
    }
    assert_eq!((ImageDetail::parse("auto"), ImageDetail::parse("all")), (Ok(None), Err(ImageDetailError)));
    let plain = ImageUrl::new("https://x");
    assert_eq!(serde_json::to_string(&plain).unwrap(), r#"{"url":"https://x"}"#);
    for detail in ["\"auto\"", "\"all\"", "null", "7"] {
        assert_eq!(read(&format!(r#"{{"url":"https://x","detail":{detail}}}"#)), plain, "{detail}");
    }
}

#[test]
fn a_file_is_named_by_its_name_then_by_its_url() {
    for (name, path, called) in [
        ("a.pdf", "x/b.pdf", Some("a.pdf")),
        ("", "x/b.pdf", Some("b.pdf")),
        ("", "b.pdf", Some("b.pdf")),
        ("", "x/", None),
        ("", "", None),
    ] {
        assert_eq!(file(name, path, "").display_name(), called, "{name:?} {path:?}");
    }
    let web = |url: &str| file("", "", url).web_url().map(str::to_owned);
    assert_eq!(web("https://x/a"), Some("https://x/a".to_owned()));
    assert_eq!((web("data:text/plain;base64,YQ=="), web("/v1/blobs/ab"), web("")), (None, None, None));
}

#[test]
fn users_and_tools_produce_parts() {
    let content = vec![ContentPart::text("words")];
    let mut given = [
        HistoryEntry::User { content: content.clone() },
        HistoryEntry::Result {
            call_id: "call_1".into(),
            status: ResultStatus::Completed,
            content: content.clone(),
            acknowledged_checks: None,
        },
    ];
    for entry in &mut given {
        assert_eq!(entry.parts(), content);
        entry.parts_mut()[0] = ContentPart::text("others");
        assert_eq!(entry.parts(), [ContentPart::text("others")]);
    }
    let mut said = HistoryEntry::System { text: "words".to_owned() };
    assert_eq!((said.parts().len(), said.parts_mut().len()), (0, 0));
}

#[test]
fn plain_text_of_blocks_has_text_and_image_urls() {
    let image = Block::Image(ImageBlock { image_url: ImageUrl::new("data:,x"), id: None });
    let blocks = [Block::Text(TextBlock::new("one")), image, Block::Text(TextBlock::new("two"))];
    assert_eq!(plain_text(&blocks), "one\n[image data:,x]\ntwo");
}

#[test]
fn a_cursor_names_its_projection_in_plain_letters() {
    assert!("deadbeef-5.blocks.1".parse::<Cursor>().is_ok());
    for text in ["deadbeef-5..1", "deadbeef-5.a b.1", "deadbeef-5.é.1"] {
        assert!(text.parse::<Cursor>().is_err(), "{text:?}");
    }
}

#[test]
fn an_invalid_cursor_is_quoted_truncated_and_escaped() {
    let Err(CursorError::Malformed(quoted)) = format!("a\n{}", "é".repeat(100)).parse::<Cursor>() else {
        panic!("that is no cursor")
    };
    assert_eq!(quoted, format!("a\u{fffd}{}", "é".repeat(62)));
}

#[test]
fn every_token_type_has_its_price() {
    let usage =
        Usage { input_tokens: 100, cached_tokens: 30, cache_write_tokens: 20, output_tokens: 10, ..Usage::default() };
    let price = Price { input: 1.0, cached: Some(0.5), cache_write: Some(2.0), output: 3.0 };
    // 50 × 1 + 30 × 0.5 + 20 × 2 + 10 × 3
    assert!((price.cost(usage) * 1e6 - 135.0).abs() < 1e-6, "{}", price.cost(usage));
    let plain = Price { cached: None, cache_write: None, ..price };
    // 100 × 1 + 10 × 3
    assert!((plain.cost(usage) * 1e6 - 130.0).abs() < 1e-6, "{}", plain.cost(usage));
}

#[test]
fn a_price_is_found_by_the_models_full_and_bare_name() {
    let mut house = Definitions::default();
    let price = |input| Price { input, ..Price::default() };
    house.prices = [("a/small".to_owned(), price(1.0)), ("a/large".to_owned(), price(5.0))].into();
    let usage = Usage { input_tokens: 1_000_000, ..Usage::default() };
    let cost = |model: &str| house.cost(model, usage);
    assert_eq!([cost("a/small"), cost("a/large")], [Some(1.0), Some(5.0)]);
    assert_eq!([cost("small"), cost("large")], [Some(1.0), Some(5.0)]);
    assert_eq!([cost("medium"), cost("b/small"), cost("a")], [None; 3]);
}

#[test]
fn a_bare_model_of_a_known_provider_is_an_agent() {
    let house = Definitions { providers: ["openai".to_owned()].into(), ..Definitions::default() };
    let (name, references) = ("openai/gpt".to_owned(), ReferencePolicy::Off);
    let tool_search = ToolSearchPolicy::Off;
    let bare = Agent { models: vec![name.clone()], name, references, tool_search, ..Agent::default() };
    assert_eq!(house.resolve_agent("openai/gpt"), Some(bare));
    for name in ["openai/", "other/gpt", "openai", "gpt", ""] {
        assert_eq!(house.resolve_agent(name), None, "{name:?}");
    }
}

#[test]
fn a_handoff_tool_is_named_in_snake_case() {
    assert_eq!(handoff_tool_name("helper"), "transfer_to_helper");
    assert_eq!(handoff_tool_name("FinanceExpert"), "transfer_to_finance_expert");
    assert_eq!(handoff_tool_name("Area51Expert"), "transfer_to_area51_expert");
    assert_eq!(handoff_tool_name("USA guide"), "transfer_to_usa_guide");
}

/// Readers rely on these limits in every log, also in one of another version.
#[test]
fn the_limits_of_the_log_are_fixed() {
    let log = (RECORD_BYTES_MAX, DONE_REPEAT_BYTES_MAX, DELTA_BYTES_MAX);
    assert_eq!(log, (262_144, 65_536, 32_768));
    assert_eq!((UNDURABLE_RECORDS_MAX, UNDURABLE_BYTES_MAX, WRITE_BYTES_MAX), (64, 65_536, 65_536));
    let limits = RunLimits::default();
    assert_eq!((limits.tool_output_bytes_max, limits.run_deadline_ms), (1_048_576, 3_600_000));
}

#[test]
fn sequence_numbers_and_epochs_display_as_numbers() {
    assert_eq!((Seq(7).to_string(), Epoch(8).to_string()), ("7".to_owned(), "8".to_owned()));
}

#[test]
fn rules_with_equal_text_are_equal() {
    let rule = |text: &str| ApprovalRule::parse(text).unwrap();
    assert_eq!(rule("args.n > 1"), rule("args.n > 1"));
    assert_ne!(rule("args.n > 1"), rule("args.n > 2"));
}

#[test]
fn a_task_id_has_the_form_of_a_run_or_a_call() {
    for name in ["task_1", "call_12_3"] {
        assert_eq!(TaskId::parse(name), Ok(TaskId::from(name)));
    }
    for name in ["", "1", "thr_1", "task", "task_é", "call_ 1"] {
        assert!(TaskId::parse(name).is_err(), "{name:?}");
    }
}

#[test]
fn every_status_round_trips() {
    for status in TaskStatus::ALL {
        assert_eq!(TaskStatus::parse(status.as_str()), Some(status));
        assert_eq!(json!(status), status.as_str());
    }
    assert_eq!(TaskStatus::parse("asleep"), None);
}

fn record() -> Record {
    let event: Event = serde_json::from_value(json!({"type": "task.started", "task_id": "task_1"})).unwrap();
    let private = Some(Box::new(PrivatePayload { deadline: Some(7), ..PrivatePayload::default() }));
    let draft = RecordDraft { seq: Seq(2), at: 5, event, private };
    Record::seal(&ThreadId::from("thr_1"), &TaskId::from("task_1"), Epoch(1), draft)
}

#[test]
fn records_are_equal_when_all_fields_are() {
    let one = record();
    assert_eq!(one, record());
    let changes: [fn(&mut Record); 8] = [
        |record| record.seq = Seq(3),
        |record| record.at = 6,
        |record| record.epoch = Epoch(2),
        |record| record.format += 1,
        |record| record.checksum ^= 1,
        |record| record.run = TaskId::from("task_2"),
        |record| record.public = "{}".into(),
        |record| record.private = "{}".into(),
    ];
    for (place, change) in changes.into_iter().enumerate() {
        let mut other = record();
        change(&mut other);
        assert_ne!(one, other, "change {place}");
    }
}

#[test]
fn the_size_of_a_record_includes_both_parts() {
    let record = record();
    assert_eq!(record.size_bytes(), r#"{"type":"task.started","task_id":"task_1"}{"deadline":7}"#.len());
}
