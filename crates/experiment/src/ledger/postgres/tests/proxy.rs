//! Proxy: stands between a ledger and its server, and does to a connection what a network can do.

use std::{
    io::{Read, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// What happens to the connection that says a text to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// It is cut, and the server does not hear of it.
    CutBefore(&'static str),
    /// The server hears it and answers, and then it is cut: the answer is lost.
    CutAfter(&'static str),
    /// From then on nothing passes in either direction, and nothing is cut.
    SilentFrom(&'static str),
}

/// A listener on loopback in front of a server's socket. Its threads end with their connections; the listener's own ends
/// with the process.
pub(super) struct Proxy {
    at: SocketAddr,
    fault: Arc<Mutex<Fault>>,
    met: Arc<AtomicUsize>,
}

impl Proxy {
    pub(super) fn start(server: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("an address");
        let fault = Arc::new(Mutex::new(Fault::None));
        let shared = Arc::clone(&fault);
        let met = Arc::new(AtomicUsize::new(0));
        let meet = Arc::clone(&met);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                match UnixStream::connect(&server) {
                    Ok(server) => carry(client, server, &shared, &meet),
                    Err(_) => drop(client),
                }
            }
        });
        Self { at, fault, met }
    }

    /// Where the database is, seen from here.
    pub(super) fn url(&self, database: &str) -> String {
        format!("postgres://mercury@{}/{database}", self.at)
    }

    /// How many times something has happened since it was last asked.
    pub(super) fn met(&self) -> usize {
        self.met.swap(0, Ordering::AcqRel)
    }

    pub(super) fn set(&self, fault: Fault) {
        *self.fault.lock().expect("no thread panics with it") = fault;
    }
}

/// What one direction of a connection tells the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Carry,
    CutAtAnswer,
    Silence,
}

fn carry(client: TcpStream, server: UnixStream, fault: &Arc<Mutex<Fault>>, met: &Arc<AtomicUsize>) {
    let told = Arc::new(Mutex::new(Told::Carry));
    let (mut from_client, mut to_server) =
        (client.try_clone().expect("a descriptor"), server.try_clone().expect("a descriptor"));
    let (fault, tell, met) = (Arc::clone(fault), Arc::clone(&told), Arc::clone(met));
    thread::spawn(move || {
        let mut buffer = [0_u8; 1 << 16];
        while let Some(count) = read(&mut from_client, &mut buffer) {
            let says = |text: &str| buffer[..count].windows(text.len()).any(|part| part == text.as_bytes());
            let fault = *fault.lock().expect("no thread panics with it");
            let mut told = tell.lock().expect("no thread panics with it");
            let at = match fault {
                Fault::None => None,
                Fault::CutBefore(text) | Fault::CutAfter(text) | Fault::SilentFrom(text) => Some(text),
            };
            met.fetch_add(usize::from(at.is_some_and(says)), Ordering::AcqRel);
            match fault {
                Fault::CutBefore(text) if says(text) => break,
                Fault::CutAfter(text) if says(text) => *told = Told::CutAtAnswer,
                Fault::SilentFrom(text) if says(text) => *told = Told::Silence,
                _ => {}
            }
            if *told != Told::Silence && to_server.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = (from_client.shutdown(Shutdown::Both), to_server.shutdown(Shutdown::Both));
    });
    let (mut from_server, mut to_client) = (server, client);
    thread::spawn(move || {
        let mut buffer = [0_u8; 1 << 16];
        while let Some(count) = read(&mut from_server, &mut buffer) {
            match *told.lock().expect("no thread panics with it") {
                Told::Carry => {}
                Told::CutAtAnswer => break,
                Told::Silence => continue,
            }
            if to_client.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = (from_server.shutdown(Shutdown::Both), to_client.shutdown(Shutdown::Both));
    });
}

fn read(stream: &mut impl Read, buffer: &mut [u8]) -> Option<usize> {
    stream.read(buffer).ok().filter(|count| *count > 0)
}
