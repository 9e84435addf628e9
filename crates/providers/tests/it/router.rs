//! The provider of a model name.

use crate::vocabulary::{played, request, steps, user};
use futures_util::StreamExt;
use model::model_turn::ModelEvent;
use model::ports::ModelClient;
use providers::ProviderRouter;
use std::sync::Arc;

fn router() -> ProviderRouter {
    let said = |word: &str| Arc::new(steps(&format!("{{ text = \"{word}\" }}")));
    ProviderRouter::new()
        .with_provider("scripted", said("old"))
        .with_provider("other", said("other"))
        .with_provider("scripted", said("scripted"))
}

async fn route_turn(model: &str) -> Vec<ModelEvent> {
    let mut request = request([user("hi")]);
    request.model = model.to_owned();
    router().stream_turn(request).collect().await
}

#[tokio::test]
async fn the_first_half_of_the_model_name_selects_the_provider() {
    assert_eq!(played(&router(), [user("hi")]).await[1], "0 scripted");
    assert_eq!(route_turn("other/a/b").await, route_turn("other/x").await);
    assert_ne!(route_turn("other/a").await, route_turn("scripted/a").await);
    assert_eq!(router().provider_names().collect::<Vec<_>>(), ["other", "scripted"]);
}

#[tokio::test]
async fn an_unknown_provider_is_a_permanent_failure() {
    for model in ["nobody/gpt", "scripted", "", "/scripted", "Scripted/demo"] {
        let events = route_turn(model).await;
        let [ModelEvent::Failed(failure)] = events.as_slice() else { panic!("{model}: {events:?}") };
        assert_eq!((failure.error.code.as_str(), failure.error.retryable), ("unknown_provider", Some(false)));
        assert_eq!(failure.error.message, format!("no provider for the model `{model}`"));
    }
}
