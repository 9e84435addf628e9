//! The log under construction, with its clock, its counters and its reference pool.

use super::LogOptions;
use super::rng::Rng;
use model::blob::blob_url;
use model::event::{CustomEvent, Event, ProviderEvent, StateDelta, StateSnapshot};
use model::id::{ItemId, TaskId, ThreadId};
use model::json::JsonObject;
use model::record::{PrivatePayload, Record, RecordDraft};
use model::seq::{Epoch, Millis, Seq};
use serde_json::{Value, json};

pub(super) struct LogBuilder {
    pub(super) rng: Rng,
    pub(super) options: LogOptions,
    pub(super) thread: ThreadId,
    /// The run that new records belong to.
    pub(super) run: TaskId,
    pub(super) now: Millis,
    pub(super) records: Vec<Record>,
    pub(super) reference_count: u32,
    epoch: Epoch,
    last_number: u32,
    /// The shared state, once this run has set it.
    shared_state: Option<JsonObject>,
}

impl LogBuilder {
    pub(super) fn new(mut rng: Rng, options: LogOptions) -> Self {
        let thread = ThreadId::from_uuid(random_uuid(&mut rng));
        Self {
            options,
            thread,
            run: TaskId::from(""),
            now: 1_710_000_000_000,
            records: Vec::new(),
            reference_count: 0,
            epoch: Epoch(1),
            last_number: 0,
            shared_state: None,
            rng,
        }
    }

    pub(super) fn start_run(&mut self) {
        self.run = TaskId::from_uuid(random_uuid(&mut self.rng));
        self.last_number = 0;
        self.shared_state = None;
    }

    pub(super) fn next_epoch(&mut self) {
        self.epoch = Epoch(self.epoch.0.saturating_add(1));
    }

    /// Records that one input causes share a timestamp.
    pub(super) fn advance_clock(&mut self) {
        let ms = self.rng.choose(1, &[0, 0, 3, 20, 20, 400]);
        self.now = self.now.saturating_add(ms);
    }

    pub(super) fn next_number(&mut self) -> u32 {
        self.last_number = self.last_number.saturating_add(1);
        self.last_number
    }

    pub(super) fn next_id(&mut self, prefix: &str) -> ItemId {
        let number = self.next_number();
        ItemId::numbered(prefix, self.run.run_suffix(), number)
    }

    /// The address of a blob, or of a file elsewhere.
    pub(super) fn random_file_url(&mut self) -> String {
        let name = self.rng.next_u64();
        if self.options.blobs { blob_url(&format!("{name:064x}")) } else { format!("https://example.org/{name:x}.png") }
    }

    pub(super) fn emit(&mut self, event: Event) {
        self.emit_with_private(event, None);
    }

    pub(super) fn emit_with_private(&mut self, event: Event, private: Option<PrivatePayload>) {
        let seq = Seq(u64::try_from(self.records.len()).unwrap_or(u64::MAX)).next();
        let draft = RecordDraft { seq, at: self.now, event, private: private.map(Box::new) };
        self.records.push(Record::seal(&self.thread, &self.run, self.epoch, draft));
    }

    /// Emits an event that a tool or a provider may send at any time.
    pub(super) fn emit_side_event(&mut self, task_id: &TaskId) {
        let task_id = task_id.clone();
        let event = match self.rng.below(4) {
            0 => self.custom_event(task_id),
            1 => {
                let event = json!({"type": "response.sparkle", "n": self.random_value()});
                Event::ProviderEvent(ProviderEvent { task_id, event })
            }
            _ => self.shared_state_event(task_id),
        };
        self.emit(event);
    }

    /// An event of the application. Some are activities of AG-UI, which tasks and runs share.
    fn custom_event(&mut self, task_id: TaskId) -> Event {
        let rng = &mut self.rng.clone();
        let value = self.random_value();
        if !self.options.client_requests || rng.chance(50) {
            return Event::Custom(CustomEvent { task_id, name: "data-mood".to_owned(), value });
        }
        let id = rng.choose("plan", &["board", "msg_1"]);
        let activity = if rng.chance(50) {
            let patch = json!([{"op": "replace", "path": "/n", "value": value}]);
            json!({"messageId": id, "activityType": "PLAN", "patch": patch})
        } else {
            let (content, replace) = (json!({ "n": value }), rng.chance(70));
            json!({"messageId": id, "activityType": "PLAN", "content": content, "replace": replace})
        };
        Event::Custom(CustomEvent { task_id, name: "ag-ui.activity".to_owned(), value: activity })
    }

    /// Changes the shared state. A run starts with a snapshot, because it must be readable on its own.
    fn shared_state_event(&mut self, task_id: TaskId) -> Event {
        let value = self.random_value();
        let replaces_state = self.rng.chance(25);
        let key = self.rng.choose("count", &["plan", "a/b", "m~n", "日本"]);
        match &mut self.shared_state {
            Some(shared) if !replaces_state => {
                let path = format!("/{}", key.replace('~', "~0").replace('/', "~1"));
                let known = shared.contains_key(key);
                let operation = if known && self.rng.chance(30) {
                    shared.remove(key);
                    json!({"op": "remove", "path": path})
                } else {
                    shared.insert(key.to_owned(), value.clone());
                    json!({"op": if known { "replace" } else { "add" }, "path": path, "value": value})
                };
                Event::StateDelta(StateDelta { task_id, delta: vec![operation] })
            }
            _ => {
                let state = JsonObject::from_iter([(key.to_owned(), value)]);
                self.shared_state = Some(state.clone());
                Event::StateSnapshot(StateSnapshot { task_id, state: Value::Object(state) })
            }
        }
    }

    /// A small JSON value of any type.
    pub(super) fn random_value(&mut self) -> Value {
        let number = self.rng.next_u64();
        match self.rng.below(6) {
            0 => json!(null),
            1 => json!(number),
            2 => json!(self.random_fraction()),
            3 => json!(super::text::random_text(&mut self.rng, 0, 4)),
            4 => json!([true, number % 10, {"deep": [[], {}]}]),
            _ => json!({"b": 1, "a": self.random_fraction()}),
        }
    }

    /// A number with many decimal places.
    pub(super) fn random_fraction(&mut self) -> f64 {
        f64::from(self.rng.between(1, u32::MAX)) / f64::from(self.rng.between(3, 1_000_003))
    }
}

pub(super) fn random_uuid(rng: &mut Rng) -> uuid::Uuid {
    uuid::Uuid::from_u64_pair(rng.next_u64(), rng.next_u64())
}
