//! Probe: `mercury probe`, the health check of an image that has no shell and no curl.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    time::Duration,
};

use crate::exit::Exit;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 8 * 1_024;

/// Arguments of `mercury probe`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Admin address of the process.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9464")]
    admin: String,
    /// Bound of the whole probe, in milliseconds.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,
}

pub(crate) fn run(args: Args) -> Exit {
    match ask(&args.admin, Duration::from_millis(args.timeout_ms)) {
        Ok(answer) if answer.starts_with("HTTP/1.1 200") => Exit::Pass,
        Ok(answer) => {
            let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
            Exit::Error(format!("{} is not ready: {body}", args.admin))
        }
        Err(error) => Exit::Error(format!("{} cannot be asked: {error}", args.admin)),
    }
}

fn ask(admin: &str, timeout: Duration) -> std::io::Result<String> {
    let address: SocketAddr = admin
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(
        format!("GET /readyz HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}
