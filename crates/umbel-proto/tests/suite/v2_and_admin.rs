//! Messages about several streams, projections and operations, under the field numbers of the
//! protocol's table.

use prost_types::Value;
use prost_types::value::Kind;
use umbel_proto::operations::{
    ScavengeResp, SetNodePriorityReq, StartScavengeOptions, StartScavengeReq, StopScavengeOptions,
    StopScavengeReq,
};
use umbel_proto::projections::{
    CreateMode, CreateOptions, CreateReq, Details, ProjectionName, ProjectionReq, StateResp,
    StatisticsMode, StatisticsOptions, StatisticsReq, StatisticsResp,
};
use umbel_proto::status::{ErrorInfo, Status, detail};
use umbel_proto::v2::errors::{
    AppendConsistencyViolationErrorDetails, AppendRecordSizeExceededErrorDetails,
    AppendTransactionSizeExceededErrorDetails, ConsistencyViolation,
    StreamAlreadyInAppendSessionErrorDetails, StreamRevisionConflictErrorDetails,
    StreamStateViolation, StreamTombstonedErrorDetails, ViolationType,
};
use umbel_proto::v2::streams::{
    AppendRecord, AppendRecordsRequest, AppendRecordsResponse, AppendRequest, AppendResponse,
    AppendSessionResponse, CheckType, ConsistencyCheck, SchemaInfo, StreamRevision,
    StreamStateCheck,
};

use super::wire_reader::check;

fn name() -> String {
    "a".to_string()
}

fn text() -> Value {
    Value { kind: Some(Kind::StringValue(name())) }
}

fn record() -> AppendRecord {
    AppendRecord {
        record_id: Some(name()),
        properties: [(name(), text())].into(),
        schema: Some(SchemaInfo { format: 3, name: name(), id: Some(name()) }),
        data: vec![7],
        stream: name(),
    }
}

#[test]
fn records_and_checks() {
    check(record(), &[1, 2, 3, 4, 5]);
    check(record().schema.unwrap(), &[1, 2, 3]);
    let request =
        AppendRequest { stream: name(), records: vec![record()], expected_revision: Some(-4) };
    check(request, &[1, 2, 3]);
    let response = AppendResponse { stream: name(), stream_revision: -1, position: Some(9) };
    check(response.clone(), &[1, 2, 3]);
    check(AppendSessionResponse { output: vec![response], position: 9 }, &[1, 2]);
    let state = StreamStateCheck { stream: name(), expected_state: -6 };
    check(state.clone(), &[1, 2]);
    let one = ConsistencyCheck { check: Some(CheckType::StreamState(state)) };
    check(one.clone(), &[1]);
    check(AppendRecordsRequest { records: vec![record()], checks: vec![one] }, &[1, 2]);
    let revision = StreamRevision { stream: name(), revision: 3 };
    check(revision.clone(), &[1, 2]);
    check(AppendRecordsResponse { revisions: vec![revision], position: 9 }, &[1, 2]);
}

#[test]
fn failures() {
    check(StreamTombstonedErrorDetails { stream: name() }, &[1]);
    check(StreamAlreadyInAppendSessionErrorDetails { stream: name() }, &[1]);
    let conflict = StreamRevisionConflictErrorDetails {
        stream: name(),
        expected_revision: -1,
        actual_revision: 4,
    };
    check(conflict, &[1, 2, 3]);
    let large = AppendRecordSizeExceededErrorDetails {
        stream: name(),
        record_id: name(),
        size: 2,
        max_size: 1,
    };
    check(large, &[1, 2, 3, 4]);
    check(AppendTransactionSizeExceededErrorDetails { size: 2, max_size: 1 }, &[1, 2]);
    let state = StreamStateViolation { stream: name(), expected_state: -4, actual_state: -5 };
    check(state.clone(), &[1, 2, 3]);
    let one =
        ConsistencyViolation { check_index: 2, violation: Some(ViolationType::StreamState(state)) };
    check(one.clone(), &[1, 2]);
    check(AppendConsistencyViolationErrorDetails { violations: vec![one] }, &[1]);
    let info = ErrorInfo { reason: name(), domain: name(), ..ErrorInfo::default() };
    check(info.clone(), &[1, 2]);
    check(ErrorInfo { metadata: [(name(), name())].into(), ..info.clone() }, &[1, 2, 3]);
    let details = vec![detail("google.rpc.ErrorInfo", &info)];
    check(Status { code: 9, message: name(), details }, &[1, 2, 3]);
}

#[test]
fn projections() {
    let named = || ProjectionName { name: name() };
    check(named(), &[1]);
    check(ProjectionReq { options: Some(named()) }, &[1]);
    let modes = [
        (CreateMode::OneTime(()), 1),
        (CreateMode::Transient(named()), 2),
        (CreateMode::Continuous(named()), 3),
    ];
    for (mode, number) in modes {
        let options = CreateOptions { mode: Some(mode), query: name(), engine_version: 1 };
        check(options.clone(), &[number, 4, 5]);
        check(CreateReq { options: Some(options) }, &[1]);
    }
    let modes = [
        (StatisticsMode::Name(name()), 1),
        (StatisticsMode::All(()), 2),
        (StatisticsMode::Transient(()), 3),
        (StatisticsMode::Continuous(()), 4),
        (StatisticsMode::OneTime(()), 5),
    ];
    for (mode, number) in modes {
        let options = StatisticsOptions { mode: Some(mode) };
        check(options.clone(), &[number]);
        check(StatisticsReq { options: Some(options) }, &[1]);
    }
    let details = Details {
        core_processing_time: 1,
        version: 2,
        epoch: 3,
        effective_name: name(),
        writes_in_progress: 5,
        reads_in_progress: 6,
        partitions_cached: 7,
        status: name(),
        state_reason: name(),
        name: name(),
        mode: name(),
        position: name(),
        progress: 0.5,
        last_checkpoint: name(),
        events_processed_after_restart: 15,
        checkpoint_status: name(),
        buffered_events: 17,
        write_pending_events_before_checkpoint: 18,
        write_pending_events_after_checkpoint: 19,
    };
    let numbers: Vec<u32> = (1..20).collect();
    check(details.clone(), &numbers);
    check(StatisticsResp { details: Some(details) }, &[1]);
    check(StateResp { state: Some(text()) }, &[1]);
}

#[test]
fn operations() {
    let options = StartScavengeOptions { thread_count: 2, start_from_chunk: 3, remove_all: true };
    check(options, &[1, 2, 1000]);
    check(StartScavengeReq { options: Some(options) }, &[1]);
    let options = StartScavengeOptions { remove_all: false, ..options };
    check(options, &[1, 2]);
    check(StartScavengeReq { options: Some(options) }, &[1]);
    let options = StopScavengeOptions { scavenge_id: name() };
    check(options.clone(), &[1]);
    check(StopScavengeReq { options: Some(options) }, &[1]);
    check(ScavengeResp { scavenge_id: name(), scavenge_result: 2 }, &[1, 2]);
    check(SetNodePriorityReq { priority: 4 }, &[1]);
}
