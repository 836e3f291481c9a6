//! Checks of the origin of a request, which keep pages of other sites from using this server.

use std::net::IpAddr;

use hyper::HeaderMap;
use hyper::header::ORIGIN;
use hyper::http::HeaderName;
use hyper::http::uri::Authority;

use crate::server_context::ServerContext;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Checks that the requested host name cannot belong to another site. Valid names are IP addresses,
/// `localhost`, and the advertised name. On a server with users any name is valid: a browser does
/// not send this server's passwords under another site's name.
///
/// # Errors
/// A sentence with the remedy, as a line.
pub fn check_host(
    service: &ServerContext,
    reached: Option<&Authority>,
) -> Result<(), &'static str> {
    if service.authorizer.has_users() {
        return Ok(());
    }
    let Some(authority) = reached else { return Ok(()) };
    let host = authority.host().trim_matches(['[', ']']);
    let is_advertised =
        service.advertise.as_ref().is_some_and(|(name, _)| name.eq_ignore_ascii_case(host));
    let is_own = host == "localhost" || host.ends_with(".localhost");
    if is_own || is_advertised || host.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    Err("this host name is not the server's: use an IP address, localhost, or the name given \
        with --advertise\n")
}

/// Whether the request can come from a page of this server, or from a program that is no browser.
/// Without encryption a proxy may encrypt, so pages may have either scheme.
pub fn is_own_origin(headers: &HeaderMap, reached: Option<&Authority>, is_encrypted: bool) -> bool {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let is_from_here = text(&FETCH_SITE).is_none_or(|site| site == "same-origin");
    let host = reached.map_or("", Authority::as_str);
    let is_origin = text(&ORIGIN).is_none_or(|origin| {
        origin.split_once("://").is_some_and(|(scheme, authority)| {
            let is_own_scheme = scheme == "https" || (scheme == "http" && !is_encrypted);
            is_own_scheme && authority == host
        })
    });
    is_from_here && is_origin
}
