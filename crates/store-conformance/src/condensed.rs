//! Rule 10 of [`Journal`]: condensed pages.

use super::TestStore;
use super::fixtures::{LogWriter, nth_thread, other_user};
use model::condense::condense_records;
use model::event::{Event, TextDelta};
use model::ports::{Journal, PageLimit, StoreError};
use model::record::Record;
use model::seq::Seq;
use model::{ItemId, TaskId, ThreadId, UserId};

/// Decodes an event, with `RUN` for the run.
fn event(run: &TaskId, json: &str) -> Event {
    let event = Event::decode(json.replace("RUN", run.as_str()).as_bytes());
    assert!(!matches!(event, Event::Unknown(_)), "{json}");
    event
}

/// Starts the run and opens a message with a text.
pub fn push_text_start(author: &mut LogWriter<'_>) {
    author.start_run();
    let item = r#"{"type":"message","id":"msg_1","role":"assistant","block_list":[]}"#;
    let added = format!(r#"{{"type":"task.output_item.added","task_id":"RUN","output_index":0,"item":{item}}}"#);
    let text = r#"{"type":"task.text.added","task_id":"RUN","item_id":"msg_1","output_index":0,"block_index":0,
                   "item":{"type":"text","text":""}}"#;
    let (added, text) = (event(&author.run, &added), event(&author.run, text));
    author.push_event(added).push_event(text);
}

/// Adds more of the text.
pub fn push_text_delta(author: &mut LogWriter<'_>, delta: &str) {
    let event = Event::TextDelta(TextDelta {
        task_id: author.run.clone(),
        item_id: ItemId::from("msg_1"),
        output_index: 0,
        block_index: 0,
        delta: delta.to_owned(),
        logprobs: None,
    });
    author.push_event(event);
}

/// Closes the text and the message, and ends the run.
pub fn push_text_end(author: &mut LogWriter<'_>) {
    let text = r#"{"type":"task.text.done","task_id":"RUN","item_id":"msg_1","output_index":0,"block_index":0,
                   "item":{"type":"text"}}"#;
    let item = r#"{"type":"message","id":"msg_1","role":"assistant","status":"completed"}"#;
    let done = format!(r#"{{"type":"task.output_item.done","task_id":"RUN","output_index":0,"item":{item}}}"#);
    let (text, done) = (event(&author.run, text), event(&author.run, &done));
    author.push_event(text).push_event(done).complete_run();
}

/// Reads a thread in condensed form.
///
/// # Errors
/// The store's error, if a page cannot be read.
pub async fn read_condensed(
    journal: &dyn Journal,
    (owner, thread): (&UserId, &ThreadId),
    (mut after, until): (Seq, Seq),
    limit: PageLimit,
) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::new();
    loop {
        let page = journal.read_condensed_page(owner, thread, after, until, limit).await?;
        let Some(last) = page.records.last() else { return Ok(records) };
        after = last.seq;
        records.extend(page.records);
    }
}

/// Checks that condensed records stand for these records, one after the other and completely.
pub fn check_condensed(condensed: &[Record], records: &[Record]) {
    let mut rest = records;
    for record in condensed {
        let (merged, after) = rest.split_at(usize::try_from(record.record_count()).unwrap());
        assert_eq!((record.first_seq(), record.seq), (merged[0].seq, merged[merged.len() - 1].seq));
        assert_eq!(std::slice::from_ref(record), condense_records(merged.to_vec()), "record {}", record.seq);
        rest = after;
    }
    assert!(rest.is_empty(), "{} records are missing", rest.len());
}

/// 10: for any range and any limit, a page has condensed records that stand for exactly the records of the range.
pub async fn a_condensed_page_stands_for_its_records(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    push_text_start(&mut author);
    for n in 0..30 {
        push_text_delta(&mut author, &format!("word {n} "));
        if n % 11 == 10 {
            author.push_note("in between");
        }
    }
    let mut all = author.must_append().await;
    check_ranges(&author, &all, &[1, 3, 1_000]).await;
    push_text_end(&mut author);
    all.extend(author.must_append().await);
    check_ranges(&author, &all, &[1, 3, 1_000]).await;
}

/// Checks condensed pages of ranges of a thread with these records, with these limits of records.
pub async fn check_ranges(author: &LogWriter<'_>, all: &[Record], limits: &[usize]) {
    let head = all.len() as u64;
    let place = (&author.owner, &author.thread);
    for after in (0..=head).step_by(1 + all.len() / 24) {
        for until in [after, after + 1, after + 7, head / 2, head, head + 5, u64::MAX] {
            for records_max in limits.iter().copied() {
                let limit = PageLimit { records_max, bytes_max: usize::MAX };
                let found = read_condensed(author.journal, place, (Seq(after), Seq(until)), limit).await.unwrap();
                let end = usize::try_from(until.min(head).max(after)).unwrap();
                check_condensed(&found, &all[usize::try_from(after).unwrap()..end]);
            }
        }
        let (owner, thread) = place;
        let page = author.journal.read_condensed_page(owner, thread, Seq(after), Seq::MAX, PageLimit::ONE).await;
        assert_eq!(page.unwrap().head, Seq(head));
    }
}

/// 8: a thread of another owner does not exist.
pub async fn a_condensed_page_of_another_owner_does_not_exist(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    author.start_run().must_append().await;
    for (owner, thread) in [(other_user(), author.thread.clone()), (author.owner.clone(), nth_thread(9))] {
        for after in [Seq(0), Seq(2), Seq(9)] {
            let read = journal.read_condensed_page(&owner, &thread, after, Seq::MAX, PageLimit::WIDE).await;
            assert_eq!(read.map(|page| page.records), Err(StoreError::ThreadNotFound));
        }
    }
}
