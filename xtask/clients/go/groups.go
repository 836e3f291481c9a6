package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
)

// Persistent subscriptions.
var groupCases = []testCase{
	{"share the events of a stream", shareStream},
	{"take over from a consumer that stops", takeOver},
	{"retry, skip, park and replay", retrySkipPark},
	{"share all events with a filter", shareAll},
	{"share a category", shareCategory},
	{"change and delete a group", changeAndDelete},
	{"list groups and restart them", listAndRestart},
	{"report a missing group", findNoGroup},
}

// Options of the calls: all defaults.
var (
	join   = kurrentdb.SubscribeToPersistentSubscriptionOptions{}
	ask    = kurrentdb.GetPersistentSubscriptionOptions{}
	list   = kurrentdb.ListPersistentSubscriptionsOptions{}
	replay = kurrentdb.ReplayParkedMessagesOptions{}
	remove = kurrentdb.DeletePersistentSubscriptionOptions{}
)

// Settings with a checkpoint after each event.
func soon() kurrentdb.PersistentSubscriptionSettings {
	settings := kurrentdb.SubscriptionSettingsDefault()
	settings.CheckpointLowerBound, settings.CheckpointUpperBound = 1, 1
	return settings
}

func fromStart(settings kurrentdb.PersistentSubscriptionSettings) kurrentdb.PersistentStreamSubscriptionOptions {
	return kurrentdb.PersistentStreamSubscriptionOptions{
		StartFrom: kurrentdb.Start{}, Settings: &settings,
	}
}

// Creates a stream of events with the numbers below this one, and a group on it.
func (w *world) newGroup(count uint64) string {
	stream := newStream()
	if count > 0 {
		w.append(stream, 0, count)
	}
	done(w.client.CreatePersistentSubscription(w.ctx, stream, "group", fromStart(soon())))
	return stream
}

func (w *world) join(stream string) *kurrentdb.PersistentSubscription {
	return must(w.client.SubscribeToPersistentSubscription(w.ctx, stream, "group", join))
}

func (w *world) info(stream string) *kurrentdb.PersistentSubscriptionInfo {
	return must(w.client.GetPersistentSubscriptionInfo(w.ctx, stream, "group", ask))
}

// Receives the given number of events.
func receive(group *kurrentdb.PersistentSubscription, count int) (events []*kurrentdb.EventAppeared) {
	for len(events) < count {
		message := group.Recv()
		if message.SubscriptionDropped != nil {
			panic(message.SubscriptionDropped.Error)
		}
		events = append(events, message.EventAppeared)
	}
	return events
}

// Receives and acknowledges the given number of events, and returns their numbers.
func acknowledge(group *kurrentdb.PersistentSubscription, count int) (seen []uint64) {
	for _, one := range receive(group, count) {
		done(group.Ack(one.Event))
		seen = append(seen, number(one.Event))
	}
	return seen
}

// Returns the reason why a consumer was dropped.
func dropped(group *kurrentdb.PersistentSubscription) error {
	for {
		if message := group.Recv(); message.SubscriptionDropped != nil {
			return message.SubscriptionDropped.Error
		}
	}
}

func until(isSo func() bool) {
	for times := 0; !isSo(); times++ {
		if times == 200 {
			panic("condition not met in time")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (w *world) untilParked(stream string, count int64) {
	until(func() bool { return w.info(stream).Stats.ParkedMessagesCount == count })
}

func (w *world) untilDone(stream string, revision uint64) {
	until(func() bool {
		last := w.info(stream).Stats.LastCheckpointedEventRevision
		return last != nil && *last == revision
	})
}

func shareStream(w *world) {
	stream := w.newGroup(3)
	group := w.join(stream)
	expect(acknowledge(group, 3), numbers(0, 3))
	w.append(stream, 3, 4)
	expect(acknowledge(group, 1), numbers(3, 4))
	w.untilDone(stream, 3)
	done(group.Close())
	w.append(stream, 4, 5)
	group = w.join(stream)
	defer group.Close()
	expect(acknowledge(group, 1), numbers(4, 5))
	seen := w.info(stream)
	expect([]string{seen.EventSource, seen.GroupName}, []string{stream, "group"})
	expect([]any{seen.Settings.CheckpointUpperBound, len(seen.Connections)}, []any{int32(1), 1})
}

func takeOver(w *world) {
	stream := w.newGroup(3)
	first := w.join(stream)
	receive(first, 3)
	done(first.Close())
	second := w.join(stream)
	defer second.Close()
	for at, one := range receive(second, 3) {
		expect([]any{number(one.Event), one.RetryCount}, []any{uint64(at), 1})
		done(second.Ack(one.Event))
	}
}

func retrySkipPark(w *world) {
	stream := w.newGroup(3)
	group := w.join(stream)
	defer group.Close()
	actions := []kurrentdb.NackAction{
		kurrentdb.NackActionRetry, kurrentdb.NackActionSkip, kurrentdb.NackActionPark,
	}
	for at, one := range receive(group, 3) {
		expect(number(one.Event), uint64(at))
		done(group.Nack("because", actions[at], one.Event))
	}
	again := receive(group, 1)[0]
	expect([]any{number(again.Event), again.RetryCount}, []any{uint64(0), 1})
	done(group.Ack(again.Event))
	w.untilParked(stream, 1)
	done(w.client.ReplayParkedMessages(w.ctx, stream, "group", replay))
	expect(acknowledge(group, 1), []uint64{2})
	w.untilParked(stream, 0)
}

func shareAll(w *world) {
	name, stream, settings := "group-"+uuid.NewString(), newStream(), soon()
	done(w.client.CreatePersistentSubscriptionToAll(w.ctx, name, kurrentdb.PersistentAllSubscriptionOptions{
		StartFrom: kurrentdb.Start{},
		Settings:  &settings,
		Filter: &kurrentdb.SubscriptionFilter{
			Type: kurrentdb.StreamFilterType, Prefixes: []string{stream},
		},
	}))
	w.append(newStream(), 7, 8)
	last := w.append(stream, 0, 2)
	group := must(w.client.SubscribeToPersistentSubscriptionToAll(w.ctx, name, join))
	expect(acknowledge(group, 1), numbers(0, 1))
	done(group.Nack("because", kurrentdb.NackActionPark, receive(group, 1)[0].Event))
	info := func() *kurrentdb.PersistentSubscriptionStats {
		return must(w.client.GetPersistentSubscriptionInfoToAll(w.ctx, name, ask)).Stats
	}
	until(func() bool { return info().ParkedMessagesCount == 1 })
	done(w.client.ReplayParkedMessagesToAll(w.ctx, name, replay))
	expect(acknowledge(group, 1), numbers(1, 2))
	until(func() bool {
		at := info().LastCheckpointedPosition
		return at != nil && at.Commit >= last.CommitPosition
	})
	listed := must(w.client.ListPersistentSubscriptionsToAll(w.ctx, list))
	isIt := func(one kurrentdb.PersistentSubscriptionInfo) bool { return one.GroupName == name }
	expect(slices.ContainsFunc(listed, isIt), true)
	changed := kurrentdb.PersistentAllSubscriptionOptions{Settings: &settings}
	done(w.client.UpdatePersistentSubscriptionToAll(w.ctx, name, changed))
	failsWith(dropped(group), "Canceled")
	done(w.client.DeletePersistentSubscriptionToAll(w.ctx, name, remove))
	_, err := w.client.GetPersistentSubscriptionInfoToAll(w.ctx, name, ask)
	expectCode(err, kurrentdb.ErrorCodeResourceNotFound)
}

func shareCategory(w *world) {
	category := strings.ReplaceAll(newStream(), "-", "")
	view, settings := "$ce-"+category, soon()
	w.append(category+"-1", 0, 2)
	settings.ResolveLinkTos = true
	done(w.client.CreatePersistentSubscription(w.ctx, view, "group", fromStart(settings)))
	group := w.join(view)
	defer group.Close()
	expect(acknowledge(group, 2), numbers(0, 2))
	w.untilDone(view, 1)
	w.append(category+"-2", 2, 3)
	live := receive(group, 1)[0].Event
	expect([]any{live.Event.StreamID, live.Link.StreamID}, []any{category + "-2", view})
	done(group.Ack(live))
	w.untilDone(view, 2)
}

func changeAndDelete(w *world) {
	stream, settings := w.newGroup(0), soon()
	err := w.client.CreatePersistentSubscription(w.ctx, stream, "group", fromStart(soon()))
	expectCode(err, kurrentdb.ErrorCodeResourceAlreadyExists)
	group := w.join(stream)
	settings.MaxSubscriberCount = 1
	done(w.client.UpdatePersistentSubscription(w.ctx, stream, "group", fromStart(settings)))
	failsWith(dropped(group), "Canceled")
	expect(w.info(stream).Settings.MaxSubscriberCount, int32(1))
	group = w.join(stream)
	_, err = w.client.SubscribeToPersistentSubscription(w.ctx, stream, "group", join)
	failsWith(err, "FailedPrecondition")
	done(w.client.DeletePersistentSubscription(w.ctx, stream, "group", remove))
	failsWith(dropped(group), "Canceled")
	err = w.client.DeletePersistentSubscription(w.ctx, stream, "group", remove)
	expectCode(err, kurrentdb.ErrorCodeResourceNotFound)
}

func listAndRestart(w *world) {
	stream := w.newGroup(1)
	group := w.join(stream)
	receive(group, 1)
	listed := must(w.client.ListPersistentSubscriptionsForStream(w.ctx, stream, list))
	expect([]any{len(listed), listed[0].GroupName}, []any{1, "group"})
	all := must(w.client.ListAllPersistentSubscriptions(w.ctx, list))
	isIt := func(one kurrentdb.PersistentSubscriptionInfo) bool { return one.EventSource == stream }
	expect(slices.ContainsFunc(all, isIt), true)
	options := kurrentdb.RestartPersistentSubscriptionSubsystemOptions{}
	done(w.client.RestartPersistentSubscriptionSubsystem(w.ctx, options))
	failsWith(dropped(group), "Canceled")
	// Unacknowledged events come again.
	group = w.join(stream)
	defer group.Close()
	expect(acknowledge(group, 1), numbers(0, 1))
}

func findNoGroup(w *world) {
	none := newStream()
	_, joined := w.client.SubscribeToPersistentSubscription(w.ctx, none, "group", join)
	_, infoErr := w.client.GetPersistentSubscriptionInfo(w.ctx, none, "group", ask)
	for call, err := range map[string]error{
		"join":   joined,
		"info":   infoErr,
		"replay": w.client.ReplayParkedMessages(w.ctx, none, "group", replay),
		"update": w.client.UpdatePersistentSubscription(w.ctx, none, "group", fromStart(soon())),
		"delete": w.client.DeletePersistentSubscription(w.ctx, none, "group", remove),
	} {
		if err == nil {
			panic(fmt.Sprint(call, " found a group"))
		}
		expectCode(err, kurrentdb.ErrorCodeResourceNotFound)
	}
}
