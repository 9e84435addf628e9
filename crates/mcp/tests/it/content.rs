//! What calls return besides text: structured content, files, links; and resources and prompts, read with tools.

use crate::fixtures::{TestServers, error, find_tool, text};
use model::content::{ContentPart, FileRef};
use model::definition::{ApprovalPolicy, McpServer};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn structured_content_is_what_the_server_promised_or_the_call_fails() {
    let servers = TestServers::new();
    let run = servers.run_with("content").await;
    let honest = servers.call(&run, "typed", "{}").await;
    assert_eq!((text(&honest), &honest.artifact), ("a is 1", &Some(json!({"structured_content": {"a": 1}}))));
    for (tool, words) in [("liar", "is not of type"), ("silent", "it has no structured content")] {
        let output = servers.call(&run, tool, "{}").await;
        let (code, message) = error(&output);
        assert_eq!(code, "invalid_output", "{tool}");
        assert!(message.starts_with("The tool's result is not what the MCP server promises: "), "{message}");
        assert!(message.contains(words), "{tool}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audio_and_files_are_files_and_links_are_in_the_artifact() {
    let servers = TestServers::new();
    let run = servers.run_with("content").await;
    let file = |name: &str, url: &str| {
        let (url, name) = (Some(url.to_owned()), Some(name.to_owned()));
        ContentPart::File { file: FileRef { url, name, ..FileRef::default() } }
    };
    let audio = servers.call(&run, "audio", "{}").await;
    assert_eq!(audio.message_content, [file("audio.wav", "data:audio/wav;base64,UklGRg==")]);
    let report = servers.call(&run, "file", "{}").await;
    let pdf = file("may.pdf", "data:application/pdf;base64,JVBERg==");
    assert_eq!(report.message_content, [ContentPart::text("See:"), pdf]);
    let links = servers.call(&run, "links", "{}").await;
    assert_eq!(text(&links), "A (file:///a.txt)");
    let link = json!({"uri": "file:///a.txt", "name": "a", "title": "A"});
    assert_eq!(links.artifact, Some(json!({"resource_links": [link]})));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_and_prompts_are_read_with_tools_where_the_operator_wants_it() {
    let servers = TestServers::new();
    assert!(!servers.run_with("friendly").await.tools.contains_key("s__read_resource"));
    let server = McpServer {
        resources: true,
        prompts: true,
        allow: Some(vec!["echo".to_owned()]),
        deny: vec!["list_prompts".to_owned()],
        approval: [("*".to_owned(), ApprovalPolicy::Never), ("get_prompt".to_owned(), ApprovalPolicy::Always)].into(),
        ..servers.server("friendly")
    };
    let run = servers.resolve(server).await.unwrap();
    let names = ["s__echo", "s__list_resources", "s__read_resource", "s__get_prompt"];
    assert_eq!(run.agents["helper"].tools, names);
    let policies = |name: &str| (find_tool(&run, name).approval.clone(), find_tool(&run, name).idempotent);
    assert_eq!(policies("get_prompt"), (ApprovalPolicy::Always, true));
    assert_eq!(policies("read_resource"), (ApprovalPolicy::Never, true));

    let first = servers.call(&run, "list_resources", "{}").await;
    let listed =
        json!({"resources": [{"uri": "file:///a.txt", "name": "a", "mime_type": "text/plain"}], "next_cursor": "2"});
    assert_eq!(serde_json::from_str::<serde_json::Value>(text(&first)).unwrap(), listed);
    let second = servers.call(&run, "list_resources", r#"{"cursor":"2"}"#).await;
    assert!(text(&second).contains("file:///b.txt") && !text(&second).contains("next_cursor"), "{second:?}");

    let read = servers.call(&run, "read_resource", r#"{"uri":"file:///a.txt"}"#).await;
    let [ContentPart::Text { text: words, .. }, ContentPart::ImageUrl { image_url, .. }] =
        read.message_content.as_slice()
    else {
        panic!("{read:?}")
    };
    assert_eq!(words, "the text of a");
    assert!(image_url.url.starts_with("data:image/png;base64,"));
    let missing = servers.call(&run, "read_resource", r#"{"uri":"file:///no"}"#).await;
    assert_eq!(error(&missing), ("tool_failed", "The MCP server `s` refused the call: There is no such resource."));

    let prompt = servers.call(&run, "get_prompt", r#"{"name":"review","arguments":{"what":"it"}}"#).await;
    assert_eq!(prompt.message_content, [ContentPart::text("user:"), ContentPart::text("Review it.")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_may_name_a_tool_that_reads_resources() {
    let servers = TestServers::new();
    let server = McpServer { resources: true, ..servers.server("friendly") };
    let named = crate::fixtures::definitions(server, &["mcp:s/read_resource"]);
    let run = crate::catalog::resolve(&servers, named).await.unwrap();
    assert_eq!(run.agents["helper"].tools, ["s__read_resource"]);
}
