//! The seam between the simulation and what predicts times.

use super::{Roofline, StepShape, StepTime, StepTokens};

/// Predicts how long a step takes.
#[derive(Clone, Debug)]
pub enum CostModel {
    Constant(ConstantCost),
    Roofline(Box<Roofline>),
}

/// So much per step and per token, for tests that want exact times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConstantCost {
    pub step_ns: u64,
    pub per_token_ns: u64,
}

impl ConstantCost {
    fn gpu_ns(&self, num_tokens: u32) -> u64 {
        self.step_ns.saturating_add(self.per_token_ns.saturating_mul(u64::from(num_tokens)))
    }
}

impl CostModel {
    /// The time of one step; engine cores that share its experts have as many tokens. A step without tokens
    /// runs nothing and takes none.
    ///
    /// Remembers what it computed, hence `&mut`; the answer does not depend on earlier calls.
    pub fn step_time(&mut self, shape: &StepShape) -> StepTime {
        let num_tokens = shape.num_tokens();
        if num_tokens == 0 {
            return StepTime::default();
        }
        match self {
            Self::Constant(cost) => StepTime { other_ns: cost.gpu_ns(num_tokens), ..StepTime::default() },
            Self::Roofline(roofline) => {
                let tokens = roofline.alike(num_tokens);
                roofline.step_time(shape, tokens)
            }
        }
    }

    /// The time of a step of one of the engine cores that share experts, without what it waits for the
    /// others; as long as that of a rank that has so many tokens.
    pub fn step_time_of_rank(&mut self, shape: &StepShape, tokens: StepTokens) -> StepTime {
        match self {
            Self::Constant(cost) => StepTime { other_ns: cost.gpu_ns(tokens.own), ..StepTime::default() },
            Self::Roofline(roofline) => roofline.step_time(shape, tokens),
        }
    }

    /// What the host does for a step of so many requests: [`StepTime::host_ns`].
    pub fn host_ns(&self, num_requests: u32) -> u64 {
        match self {
            Self::Constant(_) => 0,
            Self::Roofline(roofline) => roofline.host_ns(num_requests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_cost_is_exact() {
        let mut cost = CostModel::Constant(ConstantCost { step_ns: 1000, per_token_ns: 7 });
        let mut shape = StepShape::default();
        assert_eq!(cost.step_time(&shape), StepTime::default());
        shape.add_prefill(100, 16, true);
        shape.add_decodes(3, 3000);
        let time = cost.step_time(&shape);
        assert_eq!((time.gpu_ns(), time.host_ns), (1000 + 7 * 103, 0));
        assert_eq!((shape.num_sampled, shape.num_requests()), (4, 4));
        shape.clear();
        assert_eq!(shape, StepShape::default());
    }
}
