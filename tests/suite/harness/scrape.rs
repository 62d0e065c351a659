//! Scrape: a member's `/metrics`, read as a monitoring system would.

use std::net::SocketAddr;

use http::Request;
use http_body_util::Full;

use super::talk::http1;

/// One reading.
pub(crate) struct Scrape(String);

impl Scrape {
    /// Reads an admin port.
    pub(crate) async fn of(admin: SocketAddr) -> Self {
        let request = Request::get("/metrics").header("host", "admin").body(Full::default());
        let answer = http1(admin, request.expect("a request")).await;
        assert_eq!(answer.status, 200, "{:?}", answer.body);
        assert_eq!(answer.header("content-type"), serve::metrics::CONTENT_TYPE);
        Self(String::from_utf8(answer.body.to_vec()).expect("UTF-8"))
    }

    /// The text itself.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Sum over all series of that name with these labels. A name that does not exist is a fault of the test.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let mut values = self.series(name, labels).peekable();
        assert!(values.peek().is_some(), "no series {name} with {labels:?} in\n{}", self.0);
        values.sum()
    }

    /// As [`Scrape::sum`], where the series may not be there yet.
    pub(crate) fn sum_or(&self, name: &str, labels: &[(&str, &str)], none: f64) -> f64 {
        self.series(name, labels).fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value)).unwrap_or(none)
    }

    fn series<'a>(&'a self, name: &'a str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = f64> + 'a {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let (head, value) = match rest.strip_prefix('{') {
                Some(rest) => rest.split_once("} ")?,
                None => ("", rest.strip_prefix(' ')?),
            };
            let has = |(label, value): &(&str, &str)| {
                head.split(',').any(|pair| pair == format!("{label}=\"{value}\""))
            };
            if !labels.iter().all(has) {
                return None;
            }
            // An exemplar may follow.
            let number = value.split(' ').next().expect("a first part");
            Some(number.parse().unwrap_or_else(|_| panic!("{line}")))
        })
    }
}
