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
pub fn user_spend_today(run: &RunState) -> Spend {
    run.prior_spend.saturating_add(run_spend(run))
}

/// Takes what the run itself has spent out of `prior_spend`, which was read from the directory after the run had started.
pub fn exclude_own_spend(run: &mut RunState) {
    let (all, own) = (run.prior_spend, run_spend(run));
    run.prior_spend = Spend { usage: all.usage.saturating_sub(own.usage), cost: all.cost.saturating_sub(own.cost) };
}

fn run_spend(run: &RunState) -> Spend {
    let steps = run.fold.tasks.iter().flat_map(|task| &task.steps);
    let spends = steps.map(|step| model_spend(&run.definitions, &step.model, step.usage));
    spends.fold(Spend::default(), Spend::saturating_add)
}

/// What a model call cost; a model without a price costs nothing.
pub(crate) fn model_spend(definitions: &Definitions, model: &str, usage: Usage) -> Spend {
    Spend { usage, cost: cost_micros(definitions.cost(model, usage).unwrap_or_default()) }
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
