//! The object of a response, as a value and as text.

use crate::resumes::runs;
use model::ports::{Frames, Projection as _};
use model_testing::test_seeds;
use protocol::responses::ResponsesProjection;

/// Clients have always been sent the members in the order of a value.
#[test]
fn the_text_of_a_response_is_that_of_its_value() {
    for seed in test_seeds() {
        for (thread, records) in runs(seed) {
            let Some(run) = records.first().map(|record| record.run.clone()) else { continue };
            for segment in 1..=2 {
                let mut projection = ResponsesProjection::new(run.clone(), segment, &thread);
                for record in &records {
                    projection.project(record, &mut Frames::discarded());
                    let text = projection.object().map(|object| object.to_string());
                    assert_eq!(
                        projection.object_json().map(|pieces| pieces.concat()),
                        text.map(String::into_bytes),
                        "seed {seed}"
                    );
                }
            }
        }
    }
}

/// A viewer keeps a projection from before the first record, in case it falls behind. Ten thousand of them may wait.
#[test]
fn a_response_that_has_not_started_is_small() {
    let bytes = size_of::<ResponsesProjection>();
    assert!(bytes <= 768, "{bytes} bytes");
}
