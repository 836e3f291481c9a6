//! Messages of OTLP for the metrics: the same registry that `/metrics` shows.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as NumberValue;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prometheus_client::encoding::prometheus_protobuf::encode;
use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{
    Histogram as HistogramValue, Metric as Sample, MetricFamily, MetricType,
};
use prometheus_client::registry::Registry;

use crate::telemetry::otlp::record_messages::{scope, text_attributes};

/// Begin and end of the period that the values describe, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct MetricPeriod {
    /// Start of the counters.
    pub start_nanos: u64,
    /// Time of the values.
    pub end_nanos: u64,
}

/// The request that exports the metrics of a registry, and its number of values.
///
/// # Errors
/// A metric cannot be encoded.
pub fn metrics(
    registry: &Registry,
    resource: Resource,
    period: MetricPeriod,
) -> Result<(ExportMetricsServiceRequest, u64), std::fmt::Error> {
    let mut values = 0;
    let families = encode(registry)?.into_iter();
    let metrics: Vec<Metric> =
        families.filter_map(|family| metric(family, period, &mut values)).collect();
    let scope_metrics = ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() };
    let resource_metrics = ResourceMetrics {
        resource: Some(resource),
        scope_metrics: vec![scope_metrics],
        ..ResourceMetrics::default()
    };
    Ok((ExportMetricsServiceRequest { resource_metrics: vec![resource_metrics] }, values))
}

/// A metric under the name that `/metrics` shows; `None` without values.
fn metric(family: MetricFamily, period: MetricPeriod, values: &mut u64) -> Option<Metric> {
    let unit = unit(&family.name).to_string();
    let aggregation_temporality = AggregationTemporality::Cumulative as i32;
    let kind = family.r#type();
    let samples = family.metric.into_iter();
    let (data, count) = if kind == MetricType::Histogram {
        let data_points: Vec<_> = samples.filter_map(|one| histogram(one, period)).collect();
        let count = data_points.len();
        (Data::Histogram(Histogram { data_points, aggregation_temporality }), count)
    } else {
        let data_points: Vec<_> = samples.filter_map(|one| number(one, period)).collect();
        let count = data_points.len();
        let data = match kind {
            MetricType::Counter => {
                Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true })
            }
            _ => Data::Gauge(Gauge { data_points }),
        };
        (data, count)
    };
    *values += count as u64;
    let (name, description, data) = (family.name, family.help, Some(data));
    let metric = Metric { name, description, unit, data, ..Metric::default() };
    (count > 0).then_some(metric)
}

/// The unit in UCUM, which the names say by Prometheus' conventions.
fn unit(name: &str) -> &'static str {
    match name.strip_suffix("_total").unwrap_or(name).rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        Some("ratio") => "1",
        _ => "",
    }
}

fn labels(sample: &Sample) -> Vec<KeyValue> {
    text_attributes(sample.label.iter().map(|label| (&label.name[..], &label.value[..])))
}

/// The value of a counter or a gauge; `None` for a gauge that is not a number, which means that
/// there is no value yet.
fn number(sample: Sample, period: MetricPeriod) -> Option<NumberDataPoint> {
    let (value, start) = match (&sample.counter, &sample.gauge) {
        (Some(counter), _) => (counter.value, period.start_nanos),
        (None, Some(gauge)) => (gauge.value, 0),
        (None, None) => return None,
    };
    (!value.is_nan()).then(|| NumberDataPoint {
        attributes: labels(&sample),
        start_time_unix_nano: start,
        time_unix_nano: period.end_nanos,
        value: Some(NumberValue::AsDouble(value)),
        ..NumberDataPoint::default()
    })
}

fn histogram(sample: Sample, period: MetricPeriod) -> Option<HistogramDataPoint> {
    let attributes = labels(&sample);
    let HistogramValue { sample_count, sample_sum, bucket, .. } = sample.histogram?;
    // The last bound is infinite or the largest number, which OTLP leaves out.
    let is_finite = |bound: &f64| *bound < f64::MAX;
    let explicit_bounds: Vec<f64> =
        bucket.iter().map(|bucket| bucket.upper_bound).filter(is_finite).collect();
    let through = bucket.iter().map(|bucket| bucket.cumulative_count).take(explicit_bounds.len());
    let (mut before, mut bucket_counts) = (0, Vec::with_capacity(explicit_bounds.len() + 1));
    for through in through.chain([sample_count]) {
        bucket_counts.push(through.saturating_sub(before));
        before = through;
    }
    Some(HistogramDataPoint {
        attributes,
        start_time_unix_nano: period.start_nanos,
        time_unix_nano: period.end_nanos,
        count: sample_count,
        sum: Some(sample_sum),
        bucket_counts,
        explicit_bounds,
        ..HistogramDataPoint::default()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use prometheus_client::encoding::text;
    use prometheus_client::metrics::counter::{ConstCounter, Counter};
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::{ConstGauge, Gauge as GaugeMetric};
    use prometheus_client::metrics::histogram::Histogram as HistogramMetric;

    use super::*;
    use crate::telemetry::metric_labels::Labels;

    fn exported(registry: &Registry) -> (Vec<Metric>, u64) {
        let period = MetricPeriod { start_nanos: 1, end_nanos: 2 };
        let (request, values) = metrics(registry, Resource::default(), period).unwrap();
        let resource = request.resource_metrics.into_iter().next().unwrap();
        (resource.scope_metrics.into_iter().next().unwrap().metrics, values)
    }

    #[test]
    fn metrics_keep_names_types_units_and_labels() {
        let mut registry = Registry::default();
        let labelled: Family<Labels, Counter> = Family::default();
        for name in ["a\"b\\c\nd", "é"] {
            labelled.get_or_create(&vec![("stream", name.to_string())]).inc_by(7);
        }
        registry.register("calls", "Calls", labelled);
        registry.register("time_seconds", "Time", ConstCounter::new(2.5));
        registry.register("none", "No value", ConstGauge::new(f64::NAN));
        let gauge: GaugeMetric<f64, AtomicU64> = GaugeMetric::default();
        gauge.set(3.0);
        registry.register("memory_bytes", "Memory", gauge);
        let (metrics, values) = exported(&registry);
        let shown: Vec<(&str, &str)> =
            metrics.iter().map(|metric| (&metric.name[..], &metric.unit[..])).collect();
        let wanted = [("calls_total", ""), ("time_seconds_total", "s"), ("memory_bytes", "By")];
        assert_eq!((shown, values), (wanted.to_vec(), 4));
        let Some(Data::Sum(calls)) = &metrics[0].data else { panic!("a counter") };
        assert!(calls.is_monotonic);
        let mut names: Vec<String> = calls
            .data_points
            .iter()
            .map(|point| format!("{:?} {:?}", point.attributes[0].value, point.value))
            .collect();
        names.sort();
        assert!(
            names[0].contains(r#""a\"b\\c\nd""#) && names[0].contains("AsDouble(7.0)"),
            "{names:?}"
        );
    }

    #[test]
    fn histogram_has_a_count_for_each_bound_and_for_the_rest() {
        let mut registry = Registry::default();
        let latency = HistogramMetric::new([1.0, 2.0]);
        for value in [0.5, 1.5, 1.7, 9.0] {
            latency.observe(value);
        }
        registry.register("call_seconds", "Latency", latency);
        let mut shown = String::new();
        text::encode(&mut shown, &registry).unwrap();
        assert!(shown.contains("call_seconds_bucket{le=\"2.0\"} 3"), "{shown}");
        let (metrics, _) = exported(&registry);
        let Some(Data::Histogram(histogram)) = &metrics[0].data else { panic!("a histogram") };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum), (4, Some(12.7)));
        assert_eq!(point.explicit_bounds, [1.0, 2.0]);
        assert_eq!(point.bucket_counts, [1, 2, 1]);
    }
}
