//! At which steps a request got output, in as few words as possible: most requests get a token at
//! every step from their first to their last.

/// Steps that follow each other, both included. Only steps that computed something are counted,
/// from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSpan {
    pub first: u64,
    pub last: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct OutputSteps {
    earlier: Vec<StepSpan>,
    /// Lies here, since it is written at most steps.
    last: Option<StepSpan>,
    num_tokens: u32,
}

impl OutputSteps {
    /// `num_new_tokens` came at a step, with which the request has `num_tokens`. Those that it has
    /// got since the last call and that nobody told of came one at each step after that.
    pub fn push(&mut self, step: u64, num_new_tokens: u32, num_tokens: u32) {
        let num_untold = num_tokens - num_new_tokens - self.num_tokens;
        self.num_tokens = num_tokens;
        if let Some(span) = &mut self.last {
            span.last += u64::from(num_untold);
            if span.last + 1 == step {
                span.last = step;
                return;
            }
            self.earlier.push(*span);
        }
        self.last = Some(StepSpan { first: step, last: step });
    }

    /// All of them, when no more come.
    pub fn into_spans(self) -> Vec<StepSpan> {
        let mut spans = self.earlier;
        spans.extend(self.last);
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_goes_on_as_long_as_every_step_brings_output() {
        let mut steps = OutputSteps::default();
        // The first token at step 7, two at step 8, and one at each of 9, 10, 11 and 12.
        steps.push(7, 1, 1);
        steps.push(8, 2, 3);
        steps.push(12, 1, 7);
        assert_eq!(steps.clone().into_spans(), [StepSpan { first: 7, last: 12 }]);
        // One more at step 13, then preempted until step 20.
        steps.push(20, 1, 9);
        steps.push(21, 1, 10);
        let spans = [StepSpan { first: 7, last: 13 }, StepSpan { first: 20, last: 21 }];
        assert_eq!(steps.into_spans(), spans);
    }
}
