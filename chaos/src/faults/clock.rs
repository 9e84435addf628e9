//! The clock of a node jumps.

use crate::context::ChaosContext;
use crate::node::Node;
use anyhow::ensure;
use model_testing::Rng;
use std::time::Duration;

const HOUR_SECONDS: i64 = 3_600;
const HELD: Duration = Duration::from_secs(5);

pub(super) async fn jump_clock(context: &ChaosContext, node: &Node, rng: &mut Rng) -> anyhow::Result<String> {
    let sign = if rng.chance(50) { 1 } else { -1 };
    let mut times = vec![node.shifted_time().await?];
    for direction in [sign, -sign] {
        node.set_clock(direction * HOUR_SECONDS)?;
        times.push(node.shifted_time().await?);
        tokio::time::sleep(if context.form.is_full { HELD * 2 } else { HELD }).await;
    }
    node.set_clock(0)?;
    let jumps: Vec<i64> = times.windows(2).filter_map(|pair| Some(pair.get(1)? - pair.first()?)).collect();
    ensure!(jumps.iter().all(|jump| jump.abs() >= HOUR_SECONDS - 60), "the clock did not jump: {times:?}");
    let hours: Vec<String> =
        jumps.iter().map(|jump| format!("{:+}", (jump + jump.signum() * 60) / HOUR_SECONDS)).collect();
    Ok(format!("its clock jumped by {} hours", hours.join(" and ")))
}
