//! The model turn that is being received: which item and part each slot of the provider became.

use model::ItemId;
use model::reference::CitationScanner;
use model::usage::Usage;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub(crate) struct ModelTurn {
    pub(crate) model: String,
    /// Tokens of the attempts before this one, which failed.
    pub(crate) failed_usage: Usage,
    pub(crate) usage: Usage,
    /// Usage that the next record of the turn carries, for the process that folds the log should this one die.
    pub(crate) unlogged_usage: Option<Usage>,
    pub(crate) slots: BTreeMap<u32, ItemSlot>,
    /// The reference groups in the history that the model was given: it can cite no others.
    pub(crate) shown_references: BTreeSet<u32>,
}

impl ModelTurn {
    pub(crate) fn total_usage(&self) -> Usage {
        let mut total = self.failed_usage;
        total.add(self.usage);
        total
    }
}

/// One item of the turn.
#[derive(Clone, Debug)]
pub(crate) struct ItemSlot {
    pub(crate) output_index: u32,
    pub(crate) item_id: ItemId,
    pub(crate) kind: SlotKind,
    pub(crate) open_part: Option<OpenPart>,
    /// How many blocks or summary parts there are.
    pub(crate) part_count: u32,
    pub(crate) citations: CitationScanner,
}

/// The open part of an item: the provider's number for it, and the block or summary part that it became.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenPart {
    pub(crate) part: u32,
    pub(crate) block: u32,
    pub(crate) kind: PartKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotKind {
    Reasoning,
    Message,
    Call,
    Hosted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartKind {
    Summary,
    Text,
    Image,
}

impl SlotKind {
    pub(crate) const fn allows_part(self, part: PartKind) -> bool {
        match part {
            PartKind::Summary => matches!(self, Self::Reasoning),
            PartKind::Text => matches!(self, Self::Message),
            PartKind::Image => matches!(self, Self::Message | Self::Hosted),
        }
    }
}
