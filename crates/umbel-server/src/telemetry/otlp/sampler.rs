//! [`Sampler`]: which calls are recorded as spans.

use crate::telemetry::trace_context::{TraceId, TraceParent};

/// Decides which calls are recorded as spans.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// Share of the sampled calls, from 0 to 1.
    ratio: f64,
    /// Whether a call with a parent is sampled exactly if its parent is.
    is_parent_based: bool,
}

impl Sampler {
    /// Name of the default sampler.
    pub const DEFAULT_NAME: &str = "parentbased_traceidratio";

    /// The sampler with a name of `OTEL_TRACES_SAMPLER` and a ratio, which some samplers ignore.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn from_name(name: &str, ratio: f64) -> Result<Sampler, String> {
        let (is_parent_based, rule) = match name.strip_prefix("parentbased_") {
            Some(rule) => (true, rule),
            None => (false, name),
        };
        let ratio = match rule {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => ratio,
            _ => {
                return Err(
                    "must be always_on, always_off or traceidratio, or one of these after \
                            parentbased_"
                        .to_string(),
                );
            }
        };
        Ok(Sampler { ratio, is_parent_based })
    }

    /// Whether a call is sampled.
    pub fn samples(&self, parent: Option<&TraceParent>, trace: TraceId) -> bool {
        match parent {
            Some(parent) if self.is_parent_based => parent.is_sampled,
            // The rule of all of OpenTelemetry's SDKs, so that services agree about a trace.
            _ => {
                let number = (trace.0 as u64) >> 1;
                (number as f64) < self.ratio * (1u64 << 63) as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::trace_context::SpanId;

    /// Traces that are spread evenly.
    fn traces() -> impl Iterator<Item = TraceId> {
        (0..1000u64).map(|number| TraceId(u128::from(number << 54 | 1)))
    }

    #[test]
    fn ratio_is_the_share_of_sampled_traces() {
        for (name, ratio, wanted) in [
            ("traceidratio", 0.25, 256),
            ("parentbased_traceidratio", 0.0, 0),
            ("traceidratio", 1.0, 1000),
            ("always_on", 0.0, 1000),
            ("parentbased_always_off", 1.0, 0),
        ] {
            let sampler = Sampler::from_name(name, ratio).unwrap();
            let sampled = traces().filter(|trace| sampler.samples(None, *trace)).count();
            assert_eq!(sampled, wanted, "{name} {ratio}");
        }
        assert!(Sampler::from_name("sometimes", 0.5).is_err());
    }

    #[test]
    fn parent_decides_for_samplers_that_follow_it() {
        let parent = |is_sampled| TraceParent { trace: TraceId(1), span: SpanId(1), is_sampled };
        let by_parent = Sampler::from_name("parentbased_always_off", 0.0).unwrap();
        let always = Sampler::from_name("always_on", 0.0).unwrap();
        for is_sampled in [false, true] {
            let parent = parent(is_sampled);
            assert_eq!(by_parent.samples(Some(&parent), parent.trace), is_sampled);
            assert!(always.samples(Some(&parent), parent.trace));
        }
    }
}
