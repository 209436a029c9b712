//! What a run's figures rest on beside measurements.

use super::Scenario;
use crate::catalog::extrapolated_because;
use crate::cost::CostModel;

impl Scenario {
    /// What the times of steps and the numbers of blocks rest on where nothing was measured, one sentence
    /// each: kernels that stand in for others, a GPU without a profile or block counts of its own.
    pub fn caveats(&self) -> Vec<String> {
        let mut caveats: Vec<String> = Vec::new();
        for pool in &self.pools {
            let mut of_pool = Vec::new();
            if let CostModel::Roofline(roofline) = pool.cost() {
                // The first is the profile and its source.
                of_pool.extend(roofline.caveats().iter().skip(1).cloned());
            }
            if pool.section.num_gpu_blocks_override.is_none()
                && let Some(why) = extrapolated_because(&pool.model, pool.gpu)
            {
                of_pool.push(format!("the number of blocks is extrapolated: {why}"));
            }
            of_pool.retain(|caveat| !caveats.contains(caveat));
            caveats.extend(of_pool);
        }
        caveats
    }
}
