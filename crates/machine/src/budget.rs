//! What a run, and its user on one day, may use up.

use crate::state::RunState;
use model::limits::CostMicros;
use model::ports::Spend;
use model::usage::Usage;

/// Is something used up, so that no further turn may begin?
pub(crate) fn is_budget_exhausted(run: &RunState) -> bool {
    let limits = &run.definitions.limits;
    let (own, today) = (run_spend(run), user_spend_today(run));
    let over = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used >= limit);
    over(limits.run_tokens_max, total_tokens(own.usage))
        || over(limits.run_cost_max.map(|limit| limit.0), own.cost.0)
        || over(limits.user_day_tokens_max, total_tokens(today.usage))
        || over(limits.user_day_cost_max.map(|limit| limit.0), today.cost.0)
}

/// What the user has used up today, this run included.
pub(crate) fn user_spend_today(run: &RunState) -> Spend {
    let own = run_spend(run);
    Spend { usage: add_usage(run.prior_spend.usage, own.usage), cost: add_cost(run.prior_spend.cost, own.cost) }
}

/// What the run has used up so far.
pub(crate) fn run_spend(run: &RunState) -> Spend {
    let mut spent = Spend::default();
    for step in run.fold.tasks.iter().flat_map(|task| &task.steps) {
        spent.usage.add(step.usage);
        spent.cost =
            add_cost(spent.cost, cost_micros(run.definitions.cost(&step.model, step.usage).unwrap_or_default()));
    }
    spent
}

/// What a task and those below it cost, where the prices of all their models are known.
pub(crate) fn subtree_cost(run: &RunState, below: impl Fn(&model::TaskId) -> bool) -> Option<f64> {
    let steps = run.fold.tasks.iter().filter(|task| below(&task.id)).flat_map(|task| &task.steps);
    let mut total = None;
    for step in steps {
        total = Some(total.unwrap_or(0.0) + run.definitions.cost(&step.model, step.usage)?);
    }
    total
}

/// Money as it is counted.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a negative or endless price is none")]
pub fn cost_micros(cost: f64) -> CostMicros {
    CostMicros((cost * 1_000_000.0).ceil() as u64)
}

const fn total_tokens(usage: Usage) -> u64 {
    usage.input_tokens.saturating_add(usage.output_tokens)
}

fn add_usage(mut a: Usage, b: Usage) -> Usage {
    a.add(b);
    a
}

pub(crate) const fn subtract_usage(a: Usage, b: Usage) -> Usage {
    Usage {
        input_tokens: a.input_tokens.saturating_sub(b.input_tokens),
        cached_tokens: a.cached_tokens.saturating_sub(b.cached_tokens),
        cache_write_tokens: a.cache_write_tokens.saturating_sub(b.cache_write_tokens),
        output_tokens: a.output_tokens.saturating_sub(b.output_tokens),
        reasoning_tokens: a.reasoning_tokens.saturating_sub(b.reasoning_tokens),
    }
}

const fn add_cost(a: CostMicros, b: CostMicros) -> CostMicros {
    CostMicros(a.0.saturating_add(b.0))
}
