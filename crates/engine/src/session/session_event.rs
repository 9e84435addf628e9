//! What a session waits for, and the deltas that it applies meanwhile.

use super::ThreadSession;
use super::batch::InFlightAppend;
use crate::bursts::BurstReader;
use crate::shared::StopMode;
use machine::{MachineInput, TimerId};
use model::model_turn::ModelEvent;
use model::ports::{AppendOutcome, StoreError};
use std::task::{Context, Poll, ready};

pub(crate) enum SessionEvent {
    AppendDone(AppendOutcome),
    /// An input that may take long.
    Input(Box<MachineInput>),
    /// Deltas were applied, and there is something else to do.
    DeltasApplied,
    Wakeup,
    Timer(TimerId),
    /// A run has started, or is still queued because the store failed.
    RunPrepared(Result<(), StoreError>),
    /// The process stops while the append in flight waits for room.
    HaltedWithoutSpace,
}

impl ThreadSession<'_> {
    /// The next event. Effect streams are not polled while too much waits for the disk.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<SessionEvent> {
        // Register before polling: the commit callback may wake the session at any moment.
        self.context.wakeup.register_waker(cx);
        if let Poll::Ready(verdict) = self.poll_append(cx) {
            return Poll::Ready(SessionEvent::AppendDone(verdict));
        }
        let waits_for_space = self.in_flight.as_ref().is_some_and(InFlightAppend::waits_for_space);
        if waits_for_space && self.context.shared.stop_mode() == StopMode::Halted {
            return Poll::Ready(SessionEvent::HaltedWithoutSpace);
        }
        if self.context.wakeup.take_notified() {
            return Poll::Ready(SessionEvent::Wakeup);
        }
        if let Poll::Ready(timer) = self.timers.poll_due(cx, &*self.context.shared.ports.clock) {
            return Poll::Ready(SessionEvent::Timer(timer));
        }
        if let Poll::Ready(prepared) = self.poll_start(cx) {
            return Poll::Ready(SessionEvent::RunPrepared(prepared));
        }
        if self.effect_streams.is_empty() {
            self.burst = BurstReader::default();
            return Poll::Pending;
        }
        match self.input_capacity() {
            0 => Poll::Pending,
            room => {
                let room = ready!(self.burst.poll_room(cx, room));
                self.poll_inputs(cx, room)
            }
        }
    }

    /// Polls each effect stream for its share of the room. Deltas, which are nearly all inputs, are applied and appended here:
    /// a session that only receives deltas does not return to its loop.
    fn poll_inputs(&mut self, cx: &mut Context<'_>, mut room: usize) -> Poll<SessionEvent> {
        let mut share = room.div_ceil(self.effect_streams.len().max(1));
        self.effect_streams.take_changed();
        let (mut index, mut taken, mut applied) = (0, 0, 0);
        while index < self.effect_streams.len() {
            match self.effect_streams.poll_stream(index, cx) {
                Poll::Ready(input @ MachineInput::Model { event: ModelEvent::Delta(_), .. }) => {
                    self.step(input);
                    (taken, applied) = (taken + 1, applied + 1);
                }
                Poll::Ready(input) => return Poll::Ready(SessionEvent::Input(Box::new(input))),
                Poll::Pending => (index, taken) = (index + 1, 0),
            }
            // A chunk of a few more deltas is one append, unless others wait for a permit.
            if applied >= room && self.burst.try_begin(&self.context.shared.burst_permits) {
                room = applied + self.input_capacity();
                share = room.div_ceil(self.effect_streams.len().max(1));
            }
            if taken == share || applied >= room {
                // More may be ready: poll again.
                cx.waker().wake_by_ref();
                if applied >= room {
                    break;
                }
                (index, taken) = (index + 1, 0);
            }
        }
        if self.effect_streams.take_changed() {
            cx.waker().wake_by_ref();
        }
        self.burst.on_read(applied >= room, &self.context.shared.burst_permits);
        if applied == 0 {
            return Poll::Pending;
        }
        let has_more_to_do = self.run.is_none() || !self.waiting_rows.is_empty();
        if has_more_to_do || self.context.shared.stop_mode() != StopMode::Running {
            return Poll::Ready(SessionEvent::DeltasApplied);
        }
        self.flush();
        self.poll_append(cx).map(SessionEvent::AppendDone)
    }
}
