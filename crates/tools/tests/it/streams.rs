//! Pieces of a result while the tool runs, from programs and from endpoints.

use crate::site::{Site, answer, head};
use crate::test_toolbox::{SECRET, address, call, request, sh, shell, start};
use futures_util::StreamExt;
use model::content::ContentPart;
use model::definition::ToolExecutor;
use model::item::Block;
use model::tool::{PiecePlace, ResultPiece, ToolEvent, ToolOutput};
use tokio::io::AsyncWriteExt;

fn text(words: &str) -> ToolEvent {
    ToolEvent::Piece { piece: ResultPiece::Text(words.to_owned()), place: PiecePlace::OpenBlock }
}

fn image(url: &str, partial: Option<u32>) -> ToolEvent {
    ToolEvent::Piece { piece: ResultPiece::Image { url: url.to_owned(), partial }, place: PiecePlace::OpenBlock }
}

#[tokio::test]
async fn a_program_shows_text_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let script = r#"echo '{"type":"text","text":"one "}'; until [ -e "$1" ]; do sleep 0.01; done
        echo '{"type":"text","text":"two"}'; printf '{"type":"image","data":"AAAA","partial":0}'"#;
    let mut tool = shell(script);
    tool.command.extend(["sh".to_owned(), go.to_str().unwrap().to_owned()]);
    let mut events = start(request(ToolExecutor::Command(tool), "{}"));
    assert_eq!(events.next().await, Some(text("one ")), "before the program goes on");
    std::fs::write(&go, "").unwrap();
    assert_eq!(events.next().await, Some(text("two")));
    assert_eq!(events.next().await, Some(image("data:image/png;base64,AAAA", Some(0))), "without a last newline");
    assert_eq!(events.next().await, Some(ToolEvent::End(ToolOutput::default())), "the pieces are the result");
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn what_follows_the_pieces_is_the_rest_of_the_result() {
    let piece = r#"echo '{"type":"text","text":"a"}'"#;
    let (_, output) = call(sh(&format!(r#"{piece}; echo '{{"message_content":"b","summary":"s"}}'"#))).await;
    assert_eq!((output.message_content, output.summary.as_deref()), (vec![ContentPart::text("b")], Some("s")));
    assert_eq!(output.block_list, []);
    let (_, output) = call(sh(&format!("{piece}; echo plain; echo words"))).await;
    let [Block::Text(words)] = output.block_list.as_slice() else { panic!("{output:?}") };
    assert_eq!((words.text(), output.message_content.len()), ("plain\nwords", 0));
    let (shown, output) = call(sh(&format!("{piece}; exit 3"))).await;
    assert_eq!((shown, output.error.unwrap().code), (vec![text("a")], "command_failed".to_owned()));
}

#[tokio::test]
async fn lines_that_only_look_like_pieces_belong_to_the_result() {
    let lines = r#"echo '{"type":"text"}'; echo '{"type":"image"}'; echo '{"type":"text","text":5}'; echo ' {"type":"text","text":"x"}'"#;
    let (shown, output) = call(sh(lines)).await;
    assert_eq!(shown, []);
    let [ContentPart::Text { text, .. }] = output.message_content.as_slice() else { panic!("{output:?}") };
    assert_eq!(text.lines().count(), 4);
}

#[tokio::test]
async fn a_secret_that_is_split_over_pieces_is_redacted() {
    let (left, right) = SECRET.split_at(5);
    let mut tool = shell(&format!(
        r#"echo '{{"type":"text","text":"key {left}"}}'; echo '{{"type":"progress"}}'; echo '{{"type":"text","text":"{right}."}}'"#
    ));
    tool.env.insert("KEY".to_owned(), "env:TOKEN".to_owned());
    let (shown, _) = call(request(ToolExecutor::Command(tool), "{}")).await;
    assert_eq!((&shown[0], &shown[2]), (&text("key "), &text("[env:TOKEN].")));
}

#[tokio::test]
async fn pieces_count_towards_the_limit_of_the_output() {
    let line = r#"{"type":"text","text":"xxxxxxxxxx"}"#;
    let mut endless = sh(&format!("while :; do echo '{line}'; done"));
    endless.output_bytes_max = 400;
    let (shown, output) = call(endless).await;
    assert_eq!(output.error.unwrap().code, "output_too_large");
    assert!(shown.len() <= 400 / line.len(), "{}", shown.len());
}

#[tokio::test]
async fn an_endpoint_streams_lines_or_server_sent_events() {
    let lines = concat!(r#"{"type":"text","text":"one "}"#, "\n", r#"{"type":"text","text":"two"}"#, "\n");
    let stream = concat!(
        ": hello\n\n",
        "data: {\"type\":\"text\",\"text\":\"one \"}\n\n",
        "event: text\nid: 7\ndata: {\"text\":\ndata: \"two\"}\n\n",
        "data: [DONE]\n\n"
    );
    for (media_type, body) in [("application/x-ndjson", lines), ("text/event-stream; charset=utf-8", stream)] {
        let site = Site::answering(answer("200 OK", media_type, body)).await;
        let (shown, output) = call(request(ToolExecutor::Http(address("get", site.url("/"))), "{}")).await;
        assert_eq!((shown, output), (vec![text("one "), text("two")], ToolOutput::default()), "{media_type}");
    }
}

#[tokio::test]
async fn events_of_an_endpoint_are_shown_before_the_response_ends() {
    let (gate, waiting) = tokio::sync::watch::channel(false);
    let site = Site::serving(move |mut socket| {
        let mut waiting = waiting.clone();
        async move {
            let head = head("text/event-stream");
            let first = "event: progress\ndata: {\"message\":\"m\"}\n\ndata: {\"type\":\"image\",\"url\":\"https://example.org/a.png\"}\n\n";
            socket.write_all(format!("{head}{first}").as_bytes()).await.unwrap();
            waiting.wait_for(|go| *go).await.unwrap();
            socket.write_all(b"data: {\"summary\":\"s\"}\n\n").await.unwrap();
        }
    })
    .await;
    let mut events = start(request(ToolExecutor::Http(address("get", site.url("/"))), "{}"));
    assert!(matches!(events.next().await, Some(ToolEvent::Progress(update)) if update.message.as_deref() == Some("m")));
    assert_eq!(events.next().await, Some(image("https://example.org/a.png", None)));
    gate.send(true).unwrap();
    let Some(ToolEvent::End(output)) = events.next().await else { panic!("no end") };
    assert_eq!(output.summary.as_deref(), Some("s"));
}

#[tokio::test]
async fn a_stream_without_pieces_has_its_data_as_the_result() {
    let site = Site::answering(answer("200 OK", "text/event-stream", "data: {\"a\":1}\n\ndata: unterminated")).await;
    let (_, output) = call(request(ToolExecutor::Http(address("get", site.url("/"))), "{}")).await;
    assert_eq!(output.message_content, [ContentPart::text(r#"{"a":1}"#)]);
}
