//! Connection: the one supervised task behind a link. It dials, sends the HTTP/2 preface, hands the sending half to the
//! slot and then drives the connection, its keep-alive included, until it ends.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use h2::{
    Ping, PingPong,
    client::{Builder, Connection, SendRequest},
};

use crate::{
    config::LinkConfig,
    connect::{Connecting, Io},
    slot::{Attempt, Inner},
};

/// Largest flow-control window of HTTP/2; h2 panics above it.
const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;

/// Starts the task of attempt `generation`.
pub(crate) fn start(link: &Arc<Inner>, generation: u64) {
    let attempt = Attempt::new(link, generation);
    let config = link.shared.config;
    let connecting = link.connector.connect();
    // The task holds the link weakly: when the last handle is gone, h2 ends the connection once its streams have ended.
    link.world.tasks.spawn(link.label, Box::pin(run(attempt, connecting, config)));
}

async fn run(mut attempt: Attempt, connecting: Connecting, config: LinkConfig) {
    let connected = tokio::time::timeout(config.connect_timeout.into(), connect(connecting, &config)).await;
    let (sender, mut connection) = match connected {
        Ok(Ok(connected)) => connected,
        Ok(Err(error)) => return attempt.explain("connect failed", Some(error)),
        Err(_elapsed) => return attempt.explain("connect timed out", None),
    };
    let pings = connection.ping_pong();
    if !attempt.up(sender) {
        return;
    }
    let silent = async {
        match pings {
            Some(pings) => {
                keep_alive(pings, config.keep_alive_interval.into(), config.keep_alive_timeout.into()).await;
            }
            // A connection hands its pings out once, and this is the first time.
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased; // The connection first: frames that have arrived, the PING's answer among them, come before a verdict.
        ended = connection => match ended {
            Ok(()) => attempt.explain("the peer closed the connection", None),
            Err(error) => attempt.explain("the connection broke", Some(error.to_string())),
        },
        () = silent => attempt.explain("the peer stopped answering", None),
    }
}

async fn connect(
    connecting: Connecting,
    config: &LinkConfig,
) -> Result<(SendRequest<Bytes>, Connection<Io, Bytes>), String> {
    let io = connecting.await.map_err(|error| error.to_string())?;
    builder(config).handshake(io).await.map_err(|error| error.to_string())
}

fn builder(config: &LinkConfig) -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(config.stream_window_bytes.min(WINDOW_BYTES_MAX))
        .initial_connection_window_size(config.connection_window_bytes.min(WINDOW_BYTES_MAX))
        .max_header_list_size(config.header_bytes_max)
        .initial_max_send_streams(config.calls_max as usize)
        .max_concurrent_reset_streams(config.reset_streams_max as usize)
        .reset_stream_duration(config.reset_stream_memory.into())
        // Two counters that run for a connection's whole life and end it, with every call on it, when they run out:
        // frames for streams that were forgotten, and small DATA frames for streams that were cancelled (nothing gives
        // their budget back). Both grow with each call that is cancelled while its answer is on the way, which is
        // ordinary here. The peers are our own, and the windows bound what they can make us hold.
        .max_local_error_reset_streams(None)
        .data_frame_budget(usize::MAX);
    builder
}

/// Sends PINGs for as long as they are answered in time.
async fn keep_alive(mut pings: PingPong, interval: Duration, timeout: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        match tokio::time::timeout(timeout, pings.ping(Ping::opaque())).await {
            Ok(Ok(_pong)) => {}
            // The connection is ending, and its own future says why.
            Ok(Err(_)) => std::future::pending().await,
            Err(_elapsed) => return,
        }
    }
}
