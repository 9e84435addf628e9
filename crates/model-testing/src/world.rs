//! What all tasks of a thread share while its log is made: the log itself, time, numbers, the reference pool.

use super::Options;
use super::rng::Rng;
use super::task::{Ended, Task};
use model::block::JsonObject;
use model::event::{CustomEvent, Event, ProviderEvent, StateDelta, StateSnapshot};
use model::id::{ItemId, TaskId, ThreadId};
use model::record::{PrivatePayload, Record, RecordDraft};
use model::seq::{Epoch, Millis, Seq};
use serde_json::{Value, json};

/// The log so far, and what its next record depends on.
pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) options: Options,
    pub(super) thread: ThreadId,
    /// The run that records belong to now.
    pub(super) run: TaskId,
    pub(super) at: Millis,
    pub(super) records: Vec<Record>,
    /// Reference groups of the thread.
    pub(super) references: u32,
    /// Is the run to end when every task has finished its turn?
    pub(super) cancelling: bool,
    /// How many more sub-agents the run may have.
    pub(super) children_left: u32,
    /// Sub-agents that were asked for and have not taken their place yet.
    pub(super) born: Vec<Task>,
    /// Sub-agents that ended and whose parents do not know it yet.
    pub(super) ended: Vec<Ended>,
    epoch: Epoch,
    numbers: u32,
    /// The shared state, once this run has said what it is.
    shared: Option<JsonObject>,
}

impl World {
    pub(super) fn new(mut rng: Rng, options: Options) -> Self {
        let thread = ThreadId::from_uuid(uuid(&mut rng));
        Self {
            options,
            thread,
            run: TaskId::from(""),
            at: 1_710_000_000_000,
            records: Vec::new(),
            references: 0,
            cancelling: false,
            children_left: 0,
            born: Vec::new(),
            ended: Vec::new(),
            epoch: Epoch(1),
            numbers: 0,
            shared: None,
            rng,
        }
    }

    /// A new run begins.
    pub(super) fn begin_run(&mut self) {
        self.run = TaskId::from_uuid(uuid(&mut self.rng));
        self.cancelling = false;
        self.children_left = self.options.children_max;
        self.numbers = 0;
        self.shared = None;
    }

    /// Another executor takes over.
    pub(super) fn next_epoch(&mut self) {
        self.epoch = Epoch(self.epoch.0.saturating_add(1));
    }

    /// Time goes on. What one input causes has one moment.
    pub(super) fn tick(&mut self) {
        let ms = self.rng.choose(1, &[0, 0, 3, 20, 20, 400]);
        self.at = self.at.saturating_add(ms);
    }

    /// The name of the run's next numbered thing.
    pub(super) fn next_number(&mut self) -> u32 {
        self.numbers = self.numbers.saturating_add(1);
        self.numbers
    }

    pub(super) fn next_id(&mut self, prefix: &str) -> ItemId {
        let number = self.next_number();
        ItemId::numbered(prefix, self.run.run_suffix(), number)
    }

    pub(super) fn emit(&mut self, event: Event) {
        self.emit_with(event, None);
    }

    pub(super) fn emit_with(&mut self, event: Event, private: Option<PrivatePayload>) {
        let seq = Seq(u64::try_from(self.records.len()).unwrap_or(u64::MAX)).next();
        let draft = RecordDraft { seq, at: self.at, event, private: private.map(Box::new) };
        self.records.push(Record::seal(&self.thread, &self.run, self.epoch, draft));
    }

    /// Something that a tool, or a provider, may say at any time.
    pub(super) fn aside(&mut self, task_id: &TaskId) {
        let task_id = task_id.clone();
        let event = match self.rng.below(4) {
            0 => Event::Custom(CustomEvent { task_id, name: "data-mood".to_owned(), value: self.value() }),
            1 => {
                let event = json!({"type": "response.sparkle", "n": self.value()});
                Event::ProviderEvent(ProviderEvent { task_id, event })
            }
            _ => self.state_event(task_id),
        };
        self.emit(event);
    }

    /// The shared state changes. A run's first word on it is all of it: whoever reads this run alone must know it.
    fn state_event(&mut self, task_id: TaskId) -> Event {
        let value = self.value();
        let whole = self.rng.chance(25);
        let key = self.rng.choose("count", &["plan", "a/b", "m~n", "日本"]);
        match &mut self.shared {
            Some(shared) if !whole => {
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
                self.shared = Some(state.clone());
                Event::StateSnapshot(StateSnapshot { task_id, state: Value::Object(state) })
            }
        }
    }

    /// Any JSON value, small.
    pub(super) fn value(&mut self) -> Value {
        let number = self.rng.bits();
        match self.rng.below(6) {
            0 => json!(null),
            1 => json!(number),
            2 => json!(self.fraction()),
            3 => json!(super::text::prose(&mut self.rng, 0, 4)),
            4 => json!([true, number % 10, {"deep": [[], {}]}]),
            _ => json!({"b": 1, "a": self.fraction()}),
        }
    }

    /// A number whose decimal form is long.
    pub(super) fn fraction(&mut self) -> f64 {
        f64::from(self.rng.between(1, u32::MAX)) / f64::from(self.rng.between(3, 1_000_003))
    }
}

pub(super) fn uuid(rng: &mut Rng) -> uuid::Uuid {
    uuid::Uuid::from_u64_pair(rng.bits(), rng.bits())
}
