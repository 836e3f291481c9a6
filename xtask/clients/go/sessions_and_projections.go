package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
)

// Multi-stream appends and projections.
var secondCases = []testCase{
	{"append to several streams in one session", appendToSeveral},
	{"see a wrong revision in a session", wrongInSession},
	{"see a tombstone in a session", tombstoneInSession},
	{"check the limits of a session", tooMuchInSession},
	{"list the built-in projections", listProjections},
	{"stop, start and reset a projection", stopAndStart},
	{"get the state and the result of a projection", projectionState},
	{"report a missing projection", findNoProjection},
	{"reject projection programs", noPrograms},
}

func request(stream string, state kurrentdb.StreamState, events ...kurrentdb.EventData) kurrentdb.AppendStreamRequest {
	return kurrentdb.AppendStreamRequest{
		StreamName: stream, Events: slices.Values(events), ExpectedStreamState: state,
	}
}

func (w *world) session(requests ...kurrentdb.AppendStreamRequest) (*kurrentdb.MultiStreamAppendResponse, error) {
	return w.client.MultiStreamAppend(w.ctx, slices.Values(requests))
}

func appendToSeveral(w *world) {
	one, two := newStream(), newStream()
	traced := event(2)
	traced.Metadata = []byte(`{"trace":"7"}`)
	done := must(w.session(
		request(one, kurrentdb.NoStream{}, event(0), event(1)),
		request(two, kurrentdb.Any{}, traced),
	))
	expect(done.Responses, []kurrentdb.AppendResponse{
		{Stream: one, StreamRevision: 1}, {Stream: two, StreamRevision: 0},
	})
	expect(done.Position > 0, true)
	expect(w.all(one), numbers(0, 2))
	read := must(w.events(two, kurrentdb.ReadStreamOptions{}, 1))[0].Event
	expect(strings.Contains(string(read.UserMetadata), `"trace":"7"`), true)
}

func wrongInSession(w *world) {
	one, two := newStream(), newStream()
	w.append(one, 0, 2)
	_, err := w.session(
		request(two, kurrentdb.NoStream{}, event(1)),
		request(one, kurrentdb.Revision(7), event(2)),
	)
	code := kurrentdb.ErrorCodeStreamRevisionConflict
	var conflict *kurrentdb.StreamRevisionConflictError
	expect(errors.As(expectCode(err, code).Err(), &conflict), true)
	expect(*conflict, kurrentdb.StreamRevisionConflictError{
		Stream: one, ExpectedRevision: kurrentdb.Revision(7), ActualRevision: kurrentdb.Revision(1),
	})
	_, err = w.events(two, kurrentdb.ReadStreamOptions{}, 1)
	expectCode(err, kurrentdb.ErrorCodeResourceNotFound)
}

func tombstoneInSession(w *world) {
	stream := newStream()
	w.append(stream, 0, 1)
	must(w.client.TombstoneStream(w.ctx, stream, kurrentdb.TombstoneStreamOptions{}))
	_, err := w.session(request(stream, kurrentdb.Any{}, event(1)))
	expectCode(err, kurrentdb.ErrorCodeStreamTombstoned)
}

func tooMuchInSession(w *world) {
	_, err := w.session(request(newStream(), kurrentdb.Any{}, blob(9_000_000)))
	expectCode(err, kurrentdb.ErrorCodeAppendRecordSizeExceeded)
	_, err = w.session(
		request(newStream(), kurrentdb.Any{}, blob(6_000_000)),
		request(newStream(), kurrentdb.Any{}, blob(6_000_000)),
		request(newStream(), kurrentdb.Any{}, blob(6_000_000)),
	)
	expectCode(err, kurrentdb.ErrorCodeAppendTransactionSizeExceeded)
}

func (w *world) projections() *kurrentdb.ProjectionClient {
	return kurrentdb.NewProjectionClientFromExistingClient(w.client)
}

var nothing = kurrentdb.GenericProjectionOptions{}

func (w *world) status(name string) string {
	return must(w.projections().GetStatus(w.ctx, name, nothing)).Status
}

func listProjections(w *world) {
	names := map[string]string{}
	for _, one := range must(w.projections().ListAll(w.ctx, nothing)) {
		names[one.Name] = one.Status
	}
	expect(names, map[string]string{
		"$by_category": "Running", "$by_event_type": "Running", "$streams": "Running",
		"$stream_by_category": "Stopped", "$by_correlation_id": "Stopped",
	})
}

func done(err error) {
	if err != nil {
		panic(err)
	}
}

func stopAndStart(w *world) {
	projections := w.projections()
	done(projections.Disable(w.ctx, "$by_category", nothing))
	expect(w.status("$by_category"), "Stopped")
	done(projections.Enable(w.ctx, "$by_category", nothing))
	done(projections.Abort(w.ctx, "$by_category", nothing))
	done(projections.Enable(w.ctx, "$by_category", nothing))
	done(projections.Reset(w.ctx, "$by_category", kurrentdb.ResetProjectionOptions{}))
	expect(w.status("$by_category"), "Running")
	done(projections.RestartSubsystem(w.ctx, nothing))
}

func projectionState(w *world) {
	projections := w.projections()
	state := must(projections.GetState(w.ctx, "$streams", kurrentdb.GetStateProjectionOptions{}))
	expect(state.AsInterface(), map[string]any{})
	result := must(projections.GetResult(w.ctx, "$streams", kurrentdb.GetResultProjectionOptions{}))
	expect(result.AsInterface(), map[string]any{})
}

// The client returns the server's error unchanged.
func failsWith(err error, text string) {
	if err == nil || !strings.Contains(err.Error(), text) {
		panic(fmt.Sprintf("%v does not say %q", err, text))
	}
}

func findNoProjection(w *world) {
	projections, missing := w.projections(), "Projection 'mine' not found"
	_, err := projections.GetStatus(w.ctx, "mine", nothing)
	failsWith(err, missing)
	failsWith(projections.Enable(w.ctx, "mine", nothing), missing)
	failsWith(projections.Disable(w.ctx, "mine", nothing), missing)
	failsWith(projections.Reset(w.ctx, "mine", kurrentdb.ResetProjectionOptions{}), missing)
	failsWith(projections.Delete(w.ctx, "mine", kurrentdb.DeleteProjectionOptions{}), missing)
	failsWith(projections.Update(w.ctx, "mine", "", kurrentdb.UpdateProjectionOptions{}), missing)
	_, err = projections.GetState(w.ctx, "mine", kurrentdb.GetStateProjectionOptions{})
	failsWith(err, missing)
}

func noPrograms(w *world) {
	create := func(name string) error {
		options := kurrentdb.CreateProjectionOptions{}
		return w.projections().Create(w.ctx, name, "fromAll()", options)
	}
	failsWith(create("mine"), "projections in JavaScript are not run here")
	failsWith(create("$by_category"), "AlreadyExists")
	failsWith(w.projections().Enable(w.ctx, "$by_correlation_id", nothing), "is not kept by this server")
}
