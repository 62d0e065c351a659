//! Names: the headers of [`base::headers`] in the form that a header map looks up without parsing them first.

use base::headers;
use http::HeaderName;

macro_rules! names {
    ($($name:ident),* $(,)?) => {
        $(pub(crate) static $name: HeaderName = HeaderName::from_static(headers::$name);)*
    };
}

names!(TENANT, SUBJECT, CLASS, REGION, ORIGIN, REQUEST_ID, ATTEMPT, BUDGET_TRAIL, TRACEPARENT, TRACESTATE);
