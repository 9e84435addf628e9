//! Numbers for the items of a turn: the dialect has none.

#[derive(Clone, Debug, Default)]
pub(super) struct SlotCounter(u32);

impl SlotCounter {
    pub(super) const fn next(&mut self) -> u32 {
        let slot = self.0;
        self.0 = slot.saturating_add(1);
        slot
    }

    pub(super) const fn is_unused(&self) -> bool {
        self.0 == 0
    }
}
