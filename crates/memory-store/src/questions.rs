//! Approvals.

use crate::MemoryStore;
use async_trait::async_trait;
use model::command::ClientToolResult;
use model::ports::validation;
use model::ports::{ApprovalFilter, ApprovalRow, ListPage, PendingQuestions, StoreResult};
use model::seq::Millis;
use model::{ApprovalKey, ThreadId, UserId};
use std::cmp::Reverse;

#[async_trait]
impl PendingQuestions for MemoryStore {
    async fn approvals(&self, owner: &UserId, filter: ApprovalFilter, page: ListPage) -> StoreResult<Vec<ApprovalRow>> {
        let tables = self.lock_tables();
        let before = page.before.and_then(|key| tables.find_approval(owner, &ApprovalKey::from(key)));
        let mine = tables.threads.values().filter(|thread| thread.owner == *owner);
        let mut questions: Vec<&ApprovalRow> = mine.flat_map(|thread| &thread.approvals).collect();
        questions.sort_by_key(|question| Reverse(approval_sort_key(question)));
        questions
            .retain(|question| before.is_none_or(|before| approval_sort_key(question) < approval_sort_key(before)));
        questions.retain(|question| filter.matches(question));
        Ok(questions.into_iter().take(page.limit).cloned().collect())
    }

    async fn approval(&self, owner: &UserId, key: &ApprovalKey) -> StoreResult<Option<ApprovalRow>> {
        Ok(self.lock_tables().find_approval(owner, key).cloned())
    }

    async fn has_client_result(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        result: &ClientToolResult,
    ) -> StoreResult<bool> {
        let tables = self.lock_tables();
        let stored = tables.thread(owner, thread).and_then(|thread| thread.client_results.get(&result.call_id));
        Ok(stored == Some(&validation::result_digest(result)))
    }
}

/// Sort key of listings.
const fn approval_sort_key(question: &ApprovalRow) -> (Millis, &ApprovalKey) {
    (question.requested_at, &question.key)
}
