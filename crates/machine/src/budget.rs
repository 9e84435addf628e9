//! What a run and its user have spent, and the limits on it.

use crate::state::RunState;
use model::definition::Definitions;
use model::limits::CostMicros;
use model::ports::Spend;
use model::usage::Usage;

/// Whether a limit is reached, so that no further step may start.
pub(crate) fn is_budget_exhausted(run: &RunState) -> bool {
    let limits = &run.definitions.limits;
    let (own, today) = (run_spend(run), user_spend_today(run));
    let over = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used >= limit);
    over(limits.run_tokens_max, total_tokens(own.usage))
        || over(limits.run_cost_max.map(|limit| limit.0), own.cost.0)
        || over(limits.user_day_tokens_max, total_tokens(today.usage))
        || over(limits.user_day_cost_max.map(|limit| limit.0), today.cost.0)
}

/// What the user has spent today, this run included.
#[must_use]
pub fn user_spend_today(run: &RunState) -> Spend {
    add_spend(run.prior_spend, run_spend(run))
}

/// Takes what the run itself has spent out of `prior_spend`, which was read from the directory after the run had started.
pub fn exclude_own_spend(run: &mut RunState) {
    let (all, own) = (run.prior_spend, run_spend(run));
    run.prior_spend =
        Spend { usage: subtract_usage(all.usage, own.usage), cost: CostMicros(all.cost.0.saturating_sub(own.cost.0)) };
}

fn run_spend(run: &RunState) -> Spend {
    let steps = run.fold.tasks.iter().flat_map(|task| &task.steps);
    let spends = steps.map(|step| model_spend(&run.definitions, &step.model, step.usage));
    spends.fold(Spend::default(), add_spend)
}

/// What a model call cost; a model without a price costs nothing.
pub(crate) fn model_spend(definitions: &Definitions, model: &str, usage: Usage) -> Spend {
    Spend { usage, cost: cost_micros(definitions.cost(model, usage).unwrap_or_default()) }
}

/// Adds up what was spent; saturates.
#[must_use]
pub fn add_spend(mut total: Spend, more: Spend) -> Spend {
    total.usage.add(more.usage);
    total.cost = CostMicros(total.cost.0.saturating_add(more.cost.0));
    total
}

/// What the selected tasks cost, if the prices of all their models are known.
pub(crate) fn subtree_cost(run: &RunState, is_selected: impl Fn(&model::TaskId) -> bool) -> Option<f64> {
    let steps = run.fold.tasks.iter().filter(|task| is_selected(&task.id)).flat_map(|task| &task.steps);
    let mut total = None;
    for step in steps {
        total = Some(total.unwrap_or(0.0) + run.definitions.cost(&step.model, step.usage)?);
    }
    total
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a negative or endless price is none")]
fn cost_micros(cost: f64) -> CostMicros {
    CostMicros((cost * 1_000_000.0).ceil() as u64)
}

const fn total_tokens(usage: Usage) -> u64 {
    usage.input_tokens.saturating_add(usage.output_tokens)
}

const fn subtract_usage(a: Usage, b: Usage) -> Usage {
    Usage {
        input_tokens: a.input_tokens.saturating_sub(b.input_tokens),
        cached_tokens: a.cached_tokens.saturating_sub(b.cached_tokens),
        cache_write_tokens: a.cache_write_tokens.saturating_sub(b.cache_write_tokens),
        output_tokens: a.output_tokens.saturating_sub(b.output_tokens),
        reasoning_tokens: a.reasoning_tokens.saturating_sub(b.reasoning_tokens),
    }
}
