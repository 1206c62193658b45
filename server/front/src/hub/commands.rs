//! Carries out the commands of a client, and begins and ends its session.
//!
//! Contract:
//! 1. The commands of a client are carried out in their order, one at a time.
//! 2. A subscription gets each message of its streams after the moment in which it has joined them, once. Missed messages that it asks
//!    for are those before that moment.
//! 3. A subscription or connection that the app could not answer ends the connection, and the client tries again. An action is never
//!    carried out twice.

use super::call::{self, HubAnswer, HubOrder};
use super::local::HubClient;
use super::session::{CountedSubscription, HubSubscription, JoinedStream, LastOrder, SubscriptionPresence};
use super::socket::{CableSocket, ClientWork};
use super::timers::ChannelTimers;
use super::{count, now_ms};
use cable::command::{CableCommand, HistoryRequest};
use cable::frame::code;
use cable::message;
use cable::streams::StreamMessage;
use handler::Request;
use serde::Deserialize;
use std::rc::Rc;
use std::sync::Arc;

/// The channels whose only parameter is the name of a stream: that of `turbo_stream_from`, and that of AnyCable's clients.
const TURBO: &str = "Turbo::StreamsChannel";
const PUBSUB: &str = "$pubsub";

/// The identifier of a subscription without the app, by a signed name or by that of a public stream.
#[derive(Deserialize)]
struct NamedStream {
    channel: String,
    signed_stream_name: Option<String>,
    stream_name: Option<String>,
}

impl CableSocket {
    /// Begins the session with the app's answer to the connection.
    pub(super) fn begin(&self, answer: HubAnswer) {
        answer.transmissions.iter().for_each(|text| self.send_text(text));
        let mut session = self.session.borrow_mut();
        if answer.closed {
            session.left = true;
            drop(session);
            return self.close();
        }
        session.connection = answer.connection.unwrap_or_default();
        session.by_token = answer.by_token;
        if let Some(remote) = answer.remote {
            self.local.listen_for_end(&remote, self.client.get());
            session.remote = Some(remote);
        }
    }

    /// Ends the session: leaves all streams. The first call returns the order about the end, if the app knows of the client.
    pub(super) fn leave_session(&self) -> Option<LastOrder> {
        let mut session = self.session.borrow_mut();
        if std::mem::replace(&mut session.left, true) {
            return None;
        }
        if let Some(remote) = session.remote.take() {
            self.local.forget_end(&remote, self.client.get());
        }
        let mut channels = Vec::new();
        for subscription in std::mem::take(&mut session.subscriptions) {
            self.lose_members(&subscription);
            self.leave_streams(&subscription);
            channels.extend(subscription.channel.map(|channel| (subscription.identifier, channel)));
        }
        let is_known = !session.by_token || !channels.is_empty();
        is_known.then(|| LastOrder {
            session: self.id,
            connection: std::mem::take(&mut session.connection),
            channels,
        })
    }

    /// Carries a command or the run of a timer out.
    pub(super) async fn execute(self: &Rc<Self>, work: ClientWork) {
        let Some(template) = self.source.template() else { return };
        let command = match work {
            ClientWork::Command(command) => command,
            ClientWork::Timer(identifier, at) => {
                return self.perform(&template, "periodic", &identifier, &at.to_string()).await;
            }
        };
        match command {
            CableCommand::Subscribe { identifier, history, presence } => {
                self.subscribe(&template, &identifier, history).await;
                if let Some(presence) = presence.filter(|_| self.knows(&identifier)) {
                    self.join_presence(&identifier, presence).await;
                }
            }
            CableCommand::Unsubscribe { identifier } => self.unsubscribe(&template, &identifier).await,
            CableCommand::Perform { identifier, data } => {
                self.perform(&template, "perform", &identifier, &data).await;
            }
            CableCommand::History { identifier, history } => self.replay(&identifier, &history),
            CableCommand::Join { identifier, presence } => self.join_presence(&identifier, presence).await,
            CableCommand::Whisper { identifier, message } => self.whisper(&identifier, &message).await,
            CableCommand::Leave { identifier } => self.leave_presence(&identifier).await,
            CableCommand::Presence { identifier, records } => {
                self.show_presence(&identifier, records).await;
            }
            CableCommand::Pong => {}
        }
    }

    async fn subscribe(
        self: &Rc<Self>,
        template: &Request,
        identifier: &str,
        history: Option<HistoryRequest>,
    ) {
        let mut presence = Vec::new();
        // A second command for the same subscription has no effect, as in Action Cable.
        if !self.knows(identifier) {
            let is_full = self.session.borrow().subscriptions.len() >= self.local.hub.max_subscriptions;
            if is_full {
                return self.reject(identifier);
            }
            match self.named_stream(identifier) {
                Some(Some((stream, takes_whispers))) => {
                    let whispers_to = takes_whispers.then(|| stream.clone());
                    self.add(identifier, None, &[stream], whispers_to.as_deref());
                    self.send(message::confirmation(identifier));
                }
                Some(None) => return self.reject(identifier),
                None => {
                    let Ok(mut answer) = self.ask(template, "subscribe", identifier, None, "", true).await
                    else {
                        return self.end("server_error", true, code::INTERNAL);
                    };
                    if self.session.borrow().left {
                        // The client has gone meanwhile, and the call about its end has not named this channel.
                        let channel = answer.channel.unwrap_or_default();
                        let _ = self.ask(template, "unsubscribe", identifier, None, &channel, false).await;
                        return;
                    }
                    if answer.rejected {
                        count(&self.local.hub.counts.rejected);
                    } else {
                        let channel = answer.channel.clone().unwrap_or_default();
                        self.add(identifier, Some(channel), &answer.streams, answer.whispers_to.as_deref());
                        self.set_timers(identifier, answer.timers.as_deref().unwrap_or_default());
                    }
                    if !answer.rejected {
                        presence = std::mem::take(&mut answer.presence);
                    }
                    self.told(answer);
                }
            }
        }
        if let Some(history) = history {
            self.replay(identifier, &history);
        }
        // Behind the missed messages, because its event comes later.
        self.change_presence(identifier, presence).await;
    }

    async fn unsubscribe(&self, template: &Request, identifier: &str) {
        let found = {
            let mut session = self.session.borrow_mut();
            let at = session.subscriptions.iter().position(|known| *known.identifier == *identifier);
            at.map(|at| session.subscriptions.swap_remove(at))
        };
        let Some(subscription) = found else { return };
        self.leave_members(&subscription);
        self.leave_streams(&subscription);
        let Some(channel) = subscription.channel else { return };
        if let Ok(answer) = self.ask(template, "unsubscribe", identifier, None, &channel, false).await {
            self.told(answer);
        }
    }

    /// Lets the app run an action or a timer of a channel.
    async fn perform(
        self: &Rc<Self>,
        template: &Request,
        command: &'static str,
        identifier: &str,
        data: &str,
    ) {
        let Some(channel) = self.channel(identifier) else { return };
        let Ok(mut answer) = self.ask(template, command, identifier, Some(data), &channel, false).await
        else {
            return;
        };
        self.change(identifier, &mut answer);
        if let Some(every) = &answer.timers {
            self.set_timers(identifier, every);
        }
        let presence = std::mem::take(&mut answer.presence);
        self.told(answer);
        self.change_presence(identifier, presence).await;
    }

    /// Sends the missed messages of a subscription, or says that some are no longer kept.
    fn replay(&self, identifier: &str, history: &HistoryRequest) {
        let mut session = self.session.borrow_mut();
        let Some(subscription) =
            session.subscriptions.iter_mut().find(|known| *known.identifier == *identifier)
        else {
            return;
        };
        self.skip_known(subscription, history);
        let streams = self.local.hub.streams();
        let missed = subscription.streams.iter().map(|stream| {
            let position = history.streams.get(&*stream.name);
            let mut messages = streams.resume(&stream.name, position, history.since)?;
            messages.retain(|message| message.offset <= stream.offset);
            Some(messages)
        });
        let missed: Option<Vec<_>> = missed.collect();
        drop(streams);
        let mut missed: Option<Vec<_>> = missed.map(|missed| missed.into_iter().flatten().collect());
        missed.iter_mut().for_each(|missed| missed.sort_by_key(|message| message.number));
        let encode = |message: &Arc<StreamMessage>| message::streamed(identifier, message, self.protocol);
        // More than fits into the queue counts as lost, because the client would be closed as one that reads too slowly.
        let frames = missed.map(|missed| missed.iter().map(encode).collect::<Vec<_>>());
        let frames = frames.filter(|frames| self.has_room(frames));
        count(if frames.is_some() { &self.local.hub.counts.resumed } else { &self.local.hub.counts.gaps });
        let complete = frames.is_some();
        frames.into_iter().flatten().for_each(|frame| _ = self.send(frame));
        self.send(message::history(identifier, complete));
    }

    /// A message that the client has got from another server, and that has not arrived here yet, is not for it any more.
    fn skip_known(&self, subscription: &mut HubSubscription, history: &HistoryRequest) {
        let streams = self.local.hub.streams();
        let mut audiences = self.local.audiences.borrow_mut();
        for stream in &mut subscription.streams {
            let Some(position) = history.streams.get(&*stream.name) else { continue };
            if streams.is_ahead(position) && position.offset > stream.offset {
                stream.offset = position.offset;
                let (identifier, client) = (&subscription.identifier, self.client.get());
                audiences.raise(&stream.name, identifier, self.protocol, client, position.offset);
            }
        }
    }

    fn reject(&self, identifier: &str) {
        count(&self.local.hub.counts.rejected);
        self.send(message::rejection(identifier));
    }

    /// Asks the app about a channel. Failures are logged.
    async fn ask(
        &self,
        template: &Request,
        command: &'static str,
        identifier: &str,
        data: Option<&str>,
        channel: &str,
        repeatable: bool,
    ) -> Result<HubAnswer, ()> {
        let connection = self.session.borrow().connection.clone();
        let order = HubOrder {
            session: self.id,
            command,
            identifier: Some(identifier),
            data,
            connection: &connection,
            channels: vec![(identifier, channel)],
        };
        let local = &self.local;
        let answer = call::ask_again(&local.hub, &local.app, template, &order, repeatable).await;
        let answer = answer.map_err(|why| (local.log)(&why))?;
        if let Some(why) = &answer.needs_socket {
            local.hand_back(why);
            self.end("needs_socket", true, code::RESTART);
            return Err(());
        }
        if let Some(error) = &answer.error {
            count(&local.hub.counts.failed_calls);
            (local.log)(&format!("hub: {command}: the app reports an error: {error}"));
        }
        Ok(answer)
    }

    /// Passes the app's messages on, and keeps the state of the connection.
    fn told(&self, answer: HubAnswer) {
        if let Some(connection) = answer.connection {
            self.session.borrow_mut().connection = connection;
        }
        answer.transmissions.iter().for_each(|text| self.send_text(text));
        if answer.closed {
            self.close();
        }
    }

    /// Returns the stream of a subscription without the app and whether it takes whispers, or `Some(None)` if its signature is wrong or it is not
    /// public; `None` for all other subscriptions.
    fn named_stream(&self, identifier: &str) -> Option<Option<(String, bool)>> {
        let hub = &self.local.hub;
        let named: NamedStream = serde_json::from_str(identifier).ok()?;
        let stream = match (&*named.channel, named.signed_stream_name, named.stream_name) {
            (TURBO | PUBSUB, Some(signed), _) => hub.secret.as_ref()?.verify(&signed),
            (PUBSUB, None, Some(name)) if !hub.public.is_empty() => {
                Some(name).filter(|name| hub.public.has(name))
            }
            _ => return None,
        };
        Some(stream.map(|stream| (stream, named.channel == PUBSUB && hub.pubsub_whispers)))
    }

    fn knows(&self, identifier: &str) -> bool {
        self.session.borrow().subscriptions.iter().any(|known| *known.identifier == *identifier)
    }

    /// Returns the state of a channel that the app knows of.
    fn channel(&self, identifier: &str) -> Option<Box<str>> {
        let session = self.session.borrow();
        session.subscriptions.iter().find(|known| *known.identifier == *identifier)?.channel.clone()
    }

    /// Adds a subscription. `whispers_to`: the one of its streams to which the client may whisper.
    pub(super) fn add(
        &self,
        identifier: &str,
        channel: Option<Box<str>>,
        streams: &[String],
        whispers_to: Option<&str>,
    ) {
        let identifier: Rc<str> = identifier.into();
        let joined = streams.iter().filter_map(|name| self.join_stream(name, &identifier));
        // Most clients have one subscription with one stream, and there are many clients: no room is kept for more.
        let mut streams: Vec<JoinedStream> = joined.collect();
        streams.shrink_to_fit();
        let presence = SubscriptionPresence::default();
        let (timers, _counted) = (None, CountedSubscription::new(&self.local));
        let mut added = HubSubscription { identifier, channel, streams, presence, timers, _counted };
        if let Some(stream) = whispers_to {
            self.allow_whispers(&mut added, stream);
        }
        let mut session = self.session.borrow_mut();
        session.subscriptions.reserve_exact(1);
        session.subscriptions.push(added);
    }

    /// Gives a subscription timers with these intervals in seconds, if they are others than before.
    pub(super) fn set_timers(self: &Rc<Self>, identifier: &str, every: &[f64]) {
        let mut session = self.session.borrow_mut();
        let Some(known) = session.subscription(identifier) else { return };
        if known.timers.as_ref().map_or(&[][..], |timers| timers.every()) != every {
            let (socket, identifier) = (Rc::downgrade(self), known.identifier.clone());
            known.timers = ChannelTimers::start(every, move |at| {
                let Some(socket) = socket.upgrade() else { return false };
                socket.run_timer(ClientWork::Timer(identifier.clone(), at));
                true
            });
        }
    }

    /// Changes the state and the streams of a subscription.
    fn change(&self, identifier: &str, answer: &mut HubAnswer) {
        let mut session = self.session.borrow_mut();
        let Some(known) = session.subscriptions.iter_mut().find(|known| *known.identifier == *identifier)
        else {
            return;
        };
        if let Some(channel) = answer.channel.take() {
            known.channel = Some(channel);
        }
        let is_stopped =
            |name: &str| answer.stopped_all || answer.stopped.iter().any(|stopped| stopped == name);
        for gone in known.streams.extract_if(.., |stream| is_stopped(&stream.name)) {
            self.leave_stream(&gone, &known.identifier);
        }
        for join in known.presence.joins.extract_if(.., |join| is_stopped(&join.stream)) {
            self.leave_member(&join);
        }
        for name in &answer.streams {
            known.streams.extend(self.join_stream(name, &known.identifier));
        }
        if let Some(stream) = &answer.whispers_to {
            self.allow_whispers(known, stream);
        }
    }

    /// Joins a stream; `None` if the subscription has joined it already.
    fn join_stream(&self, name: &str, identifier: &Rc<str>) -> Option<JoinedStream> {
        let mut offset = 0;
        let joined = self.local.audiences.borrow_mut().join(
            name,
            identifier,
            self.protocol,
            self.client.get(),
            || {
                offset = self.local.hub.streams().listen(name, self.local.index, now_ms());
                offset
            },
        );
        joined.then(|| JoinedStream { name: name.into(), offset, takes_whispers: false })
    }

    fn leave_streams(&self, subscription: &HubSubscription) {
        subscription.streams.iter().for_each(|stream| self.leave_stream(stream, &subscription.identifier));
    }

    fn leave_stream(&self, stream: &JoinedStream, identifier: &Rc<str>) {
        let (name, client) = (&*stream.name, self.client.get());
        if stream.takes_whispers {
            self.stop_whispers(name, identifier);
        }
        if self.local.audiences.borrow_mut().leave(name, identifier, self.protocol, client) {
            self.local.hub.streams().unlisten(name, self.local.index, now_ms());
        }
    }
}
