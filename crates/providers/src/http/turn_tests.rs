use super::*;
use crate::http::{
    HttpProvider, HttpProviderSettings, HttpTimeouts, ProviderClient, ResolvedText, ResponseLimits, UpstreamDialect,
    Url,
};
use futures_util::FutureExt as _;
use futures_util::stream::StreamExt as _;
use http_body_util::Full;
use model::history::SharedHistory;

const WARM_UP_DELTAS: usize = 100;
const DELTAS: usize = 1000;

/// A turn whose response is `body`.
fn reading_turn(dialect: UpstreamDialect, body: String) -> HttpTurn {
    let settings = HttpProviderSettings {
        name: "up".to_owned(),
        dialect,
        base_url: Url::parse("http://127.0.0.1:9/v1").unwrap(),
        api_key_ref: None,
        headers: [].into(),
        options: Arc::default(),
        takes_image_urls: true,
        timeouts: HttpTimeouts::default(),
        limits: ResponseLimits::default(),
        cassette_dir: None,
    };
    let client = ProviderClient::new(ProviderClient::CONNECT_TIMEOUT).unwrap();
    let no_secrets = |text| async { Ok(ResolvedText { text, secret_values: Vec::new() }) }.boxed();
    let HttpProvider { inner } = HttpProvider::new(settings, client, Arc::new(no_secrets));
    let request = ModelRequest {
        user: "local".into(),
        thread: "thr_1".into(),
        task: "task_1".into(),
        step: 1,
        attempt: 1,
        model: "up/m".to_owned(),
        instructions: String::new(),
        history: SharedHistory::default(),
        tools: Arc::new([]),
        provider_options: Arc::default(),
        deferred_tools: Arc::default(),
        model_settings: Arc::default(),
    };
    let ingest = dialect.new_ingest("here".to_owned(), &request);
    let timeouts = TurnTimeouts::new(inner.settings.timeouts);
    let body = Full::from(body).map_err(|never| match never {}).boxed_unsync();
    let reader = ResponseReader::new(body, inner.settings.limits, ingest, timeouts);
    let mut turn = HttpTurn::new(inner, request);
    turn.context.secrets.add_values(vec!["sk-proj-0123456789abcdef".to_owned()]);
    turn.stage = HttpTurnStage::Reading(Box::new(reader));
    turn
}

/// Between the body of a response and the model event, only the text of the event is allocated: no future, no timer, no
/// message for an error that does not happen.
#[tokio::test]
async fn a_text_delta_is_one_allocation() {
    let chat = r#"data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}"#;
    let responses = concat!(
        "event: response.output_text.delta\n",
        r#"data: {"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":" word","logprobs":[]}"#
    );
    let messages = concat!(
        "event: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" word"}}"#
    );
    let rows =
        [(UpstreamDialect::Chat, chat), (UpstreamDialect::Responses, responses), (UpstreamDialect::Messages, messages)];
    for (dialect, delta) in rows {
        let mut turn = reading_turn(dialect, format!("{delta}\n\n").repeat(WARM_UP_DELTAS + DELTAS));
        let mut read = |deltas: usize| {
            for _ in 0..deltas {
                let event = turn.next().now_or_never().unwrap();
                assert!(matches!(event, Some(ModelEvent::Delta(_))), "{event:?}");
            }
        };
        read(WARM_UP_DELTAS);
        let counted = allocation_counter::measure(|| read(DELTAS)).count_total;
        // Buffers that keep the whole text grow a few times.
        assert!(counted <= DELTAS as u64 + 8, "{counted} allocations for {DELTAS} deltas of {dialect:?}");
    }
}

#[tokio::test]
async fn a_secret_of_the_turn_is_redacted_from_a_delta() {
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"my key: sk-proj-0123456789abcdef!\"}}]}\n\n";
    let mut turn = reading_turn(UpstreamDialect::Chat, body.to_owned());
    let _started = turn.next().now_or_never().unwrap();
    let Some(ModelEvent::Delta(ModelDelta::Text { text, .. })) = turn.next().now_or_never().unwrap() else {
        panic!("no text")
    };
    assert_eq!(text, "my key: [removed]!");
    let Some(ModelEvent::Failed(failure)) = turn.next().now_or_never().unwrap() else { panic!("no end") };
    assert_eq!(failure.error.code, "upstream_incomplete");
    assert_eq!(turn.next().now_or_never().unwrap(), None);
}
