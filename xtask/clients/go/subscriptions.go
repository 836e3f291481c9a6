package main

import (
	"strings"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
)

var streamCases = []testCase{
	{"subscribe to a stream, catch up and go live", subscribe},
	{"subscribe after an event and from the end", subscribeLater},
	{"subscribe to a missing stream", subscribeEarly},
	{"subscribe to all", subscribeToAll},
	{"subscribe with filters by prefix and expression", subscribeFiltered},
	{"subscribe with a filter and keep a checkpoint", keepCheckpoint},
	{"reject a broken expression", brokenExpression},
	{"resolve links", resolveLinks},
	{"read and follow views", followView},
}

var againCases = []testCase{
	{"resume at a checkpoint after a restart", goOn},
}

func (w *world) follow(stream string, from kurrentdb.StreamPosition) *kurrentdb.Subscription {
	options := kurrentdb.SubscribeToStreamOptions{From: from}
	return must(w.client.SubscribeToStream(w.ctx, stream, options))
}

func (w *world) followAll(options kurrentdb.SubscribeToAllOptions) *kurrentdb.Subscription {
	return must(w.client.SubscribeToAll(w.ctx, options))
}

func subscribe(w *world) {
	stream := newStream()
	w.append(stream, 0, 120)
	subscription := w.follow(stream, kurrentdb.Start{})
	defer subscription.Close()
	seen, before, _ := take(subscription, 120)
	for n := uint64(120); n < 170; n++ {
		w.append(stream, n, n+1)
	}
	live, after, _ := take(subscription, 50)
	expect(append(seen, live...), numbers(0, 170))
	expect(before+after, 1)
}

func subscribeLater(w *world) {
	stream := newStream()
	w.append(stream, 0, 5)
	behind, live := w.follow(stream, kurrentdb.Revision(2)), w.follow(stream, kurrentdb.End{})
	defer behind.Close()
	defer live.Close()
	for live.Recv().CaughtUp == nil {
	}
	w.append(stream, 5, 6)
	first, _, _ := take(behind, 3)
	second, _, _ := take(live, 1)
	expect([][]uint64{first, second}, [][]uint64{{3, 4, 5}, {5}})
}

func subscribeEarly(w *world) {
	stream := newStream()
	subscription := w.follow(stream, kurrentdb.Start{})
	defer subscription.Close()
	w.append(stream, 0, 3)
	seen, _, _ := take(subscription, 3)
	expect(seen, numbers(0, 3))
}

func subscribeToAll(w *world) {
	stream := newStream()
	first := w.append(stream, 0, 1)
	subscription := w.followAll(kurrentdb.SubscribeToAllOptions{From: position(first)})
	defer subscription.Close()
	for n := uint64(1); n < 21; n++ {
		w.append(stream, n, n+1)
	}
	seen, _, _ := take(subscription, 20)
	expect(seen, numbers(1, 21))
}

func subscribeFiltered(w *world) {
	name := newStream()
	first := w.mixed(name, 0, 20)
	for _, one := range []struct {
		filter kurrentdb.SubscriptionFilter
		wanted []uint64
	}{
		{kurrentdb.SubscriptionFilter{
			Type: kurrentdb.StreamFilterType, Prefixes: []string{name + "-cart", "absent"},
		}, odd(1, 20)},
		{kurrentdb.SubscriptionFilter{
			Type: kurrentdb.StreamFilterType, Regex: "^" + name + "-(?!order)",
		}, odd(1, 20)},
		{kurrentdb.SubscriptionFilter{
			Type: kurrentdb.EventFilterType, Prefixes: []string{"Count"},
		}, numbers(1, 20)},
		{*kurrentdb.ExcludeSystemEventsFilter(), numbers(1, 20)},
	} {
		options := kurrentdb.SubscribeToAllOptions{From: first, Filter: &one.filter}
		subscription := w.followAll(options)
		seen, _, _ := take(subscription, len(one.wanted))
		expect(seen, one.wanted)
		subscription.Close()
	}
}

func keepCheckpoint(w *world) {
	name := newStream()
	first := w.mixed(name, 0, 20)
	options := kurrentdb.SubscribeToAllOptions{
		From:               first,
		MaxSearchWindow:    3,
		CheckpointInterval: 1,
		Filter: &kurrentdb.SubscriptionFilter{
			Type: kurrentdb.StreamFilterType, Prefixes: []string{name + "-cart"},
		},
	}
	subscription := w.followAll(options)
	defer subscription.Close()
	seen, _, places := take(subscription, 10)
	expect(seen, odd(1, 20))
	for message := subscription.Recv(); message.CaughtUp == nil; message = subscription.Recv() {
		if message.CheckPointReached != nil {
			places = append(places, *message.CheckPointReached)
		}
	}
	expect(len(places) >= 6, true)
	w.keep(keepsake{Name: name, Place: places[len(places)-1].Commit})
}

func goOn(w *world) {
	kept := w.before()
	w.mixed(kept.Name, 20, 26)
	filter := kurrentdb.SubscriptionFilter{
		Type: kurrentdb.StreamFilterType, Prefixes: []string{kept.Name + "-cart"},
	}
	from := kurrentdb.Position{Commit: kept.Place, Prepare: kept.Place}
	subscription := w.followAll(kurrentdb.SubscribeToAllOptions{From: from, Filter: &filter})
	defer subscription.Close()
	seen, _, _ := take(subscription, 3)
	expect(seen, odd(21, 26))
}

func brokenExpression(w *world) {
	filter := kurrentdb.SubscriptionFilter{Type: kurrentdb.EventFilterType, Regex: "a(b"}
	options := kurrentdb.SubscribeToAllOptions{From: kurrentdb.Start{}, Filter: &filter}
	subscription, err := w.client.SubscribeToAll(w.ctx, options)
	if err == nil {
		err = subscription.Recv().SubscriptionDropped.Error
	}
	expect(strings.Contains(err.Error(), "broken at character"), true)
}

func resolveLinks(w *world) {
	stream, links := newStream(), newStream()
	w.append(stream, 7, 9)
	must(w.try(links, kurrentdb.Any{}, link(1, stream), link(0, stream)))
	options := kurrentdb.ReadStreamOptions{From: kurrentdb.Start{}, ResolveLinkTos: true}
	read := must(w.events(links, options, 10))
	expect(numbersOf(read), []uint64{8, 7})
	expect([]any{read[1].Event.StreamID, read[1].Link.EventNumber}, []any{stream, uint64(1)})
	follow := kurrentdb.SubscribeToStreamOptions{From: kurrentdb.Start{}, ResolveLinkTos: true}
	subscription := must(w.client.SubscribeToStream(w.ctx, links, follow))
	defer subscription.Close()
	seen, _, _ := take(subscription, 2)
	expect(seen, []uint64{8, 7})
}

func followView(w *world) {
	category := "go" + strings.ReplaceAll(newStream(), "-", "")
	w.append(category+"-1", 0, 2)
	w.append(category+"-2", 2, 4)
	view := "$ce-" + category
	options := kurrentdb.ReadStreamOptions{From: kurrentdb.Start{}, ResolveLinkTos: true}
	expect(w.read(view, options, 10), numbers(0, 4))
	follow := kurrentdb.SubscribeToStreamOptions{From: kurrentdb.Revision(1), ResolveLinkTos: true}
	subscription := must(w.client.SubscribeToStream(w.ctx, view, follow))
	defer subscription.Close()
	w.append(category+"-1", 4, 5)
	seen, _, _ := take(subscription, 3)
	expect(seen, numbers(2, 5))
}
