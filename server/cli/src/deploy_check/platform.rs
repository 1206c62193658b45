//! The proxy or load balancer in front of the server, and its time-outs.
//!
//! Sources: Heroku's "HTTP routing" and "Dyno lifecycle" (30 s to the first byte, keep-alive of 90 s, KILL 30 s after TERM); nginx's
//! `proxy_read_timeout` and `keepalive_timeout` of an upstream, which ingress-nginx shares; AWS's idle timeout of an Application Load Balancer;
//! Cloudflare's "Connection limits"; Kubernetes' `terminationGracePeriodSeconds`.
//!
//! Contract: pure.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use settings::{Bind, Settings};

/// The proxy or load balancer in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyInFront {
    Nothing,
    Nginx,
    /// AWS's Application Load Balancer.
    Alb,
    Heroku,
    /// An Ingress; the defaults are those of ingress-nginx.
    Kubernetes,
    Cloudflare,
}

impl ProxyInFront {
    const ALL: [ProxyInFront; 6] = [
        ProxyInFront::Nginx,
        ProxyInFront::Alb,
        ProxyInFront::Heroku,
        ProxyInFront::Kubernetes,
        ProxyInFront::Cloudflare,
        ProxyInFront::Nothing,
    ];

    /// Returns the word of `--behind`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            ProxyInFront::Nothing => "none",
            ProxyInFront::Nginx => "nginx",
            ProxyInFront::Alb => "alb",
            ProxyInFront::Heroku => "heroku",
            ProxyInFront::Kubernetes => "kubernetes",
            ProxyInFront::Cloudflare => "cloudflare",
        }
    }

    /// Returns the name for sentences.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ProxyInFront::Nothing => "nothing",
            ProxyInFront::Nginx => "nginx",
            ProxyInFront::Alb => "the load balancer",
            ProxyInFront::Heroku => "Heroku's router",
            ProxyInFront::Kubernetes => "the Ingress (ingress-nginx)",
            ProxyInFront::Cloudflare => "Cloudflare",
        }
    }

    /// Reads a word of `--behind`.
    ///
    /// # Errors
    /// The message lists the words.
    pub(crate) fn parse(word: &str) -> Result<ProxyInFront, String> {
        ProxyInFront::ALL.into_iter().find(|one| one.word() == word).ok_or_else(|| {
            let words = ProxyInFront::ALL.map(ProxyInFront::word).join(", ");
            format!("--behind {word}: expected one of {words}")
        })
    }

    /// How long it waits for the first byte of a response.
    pub(crate) fn first_byte(self) -> Option<Duration> {
        let seconds = match self {
            ProxyInFront::Nothing => return None,
            ProxyInFront::Heroku => 30,
            ProxyInFront::Nginx | ProxyInFront::Alb | ProxyInFront::Kubernetes => 60,
            ProxyInFront::Cloudflare => 100,
        };
        Some(Duration::from_secs(seconds))
    }

    /// How long it keeps an idle connection to the server for the next request.
    pub(crate) fn idle(self) -> Option<Duration> {
        let seconds = match self {
            ProxyInFront::Nothing => return None,
            ProxyInFront::Heroku => 90,
            ProxyInFront::Nginx | ProxyInFront::Alb | ProxyInFront::Kubernetes => 60,
            ProxyInFront::Cloudflare => 900,
        };
        Some(Duration::from_secs(seconds))
    }

    /// An address that its connections may come from; `None`: it depends.
    pub(crate) fn peer(self) -> Option<IpAddr> {
        match self {
            // The first address of the first network that Cloudflare lists.
            ProxyInFront::Cloudflare => Some(IpAddr::V4(Ipv4Addr::new(173, 245, 48, 1))),
            // The router and the pods have addresses in 10.0.0.0/8.
            ProxyInFront::Heroku => Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))),
            _ => None,
        }
    }
}

/// The surroundings of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Surroundings {
    pub(crate) proxy: ProxyInFront,
    /// Why the proxy is assumed: a flag, a variable, the addresses.
    pub(crate) because: String,
    /// The time between TERM and KILL, and where it comes from.
    pub(crate) grace: Option<(Duration, String)>,
    pub(crate) kubernetes: bool,
    /// A platform whose router connects to `PORT` from another machine, by its variable.
    pub(crate) routed_by: Option<&'static str>,
}

/// Variables of platforms whose routers connect to `PORT`.
const ROUTED: [&str; 4] = ["DYNO", "K_SERVICE", "FLY_APP_NAME", "RENDER"];
/// The default of Heroku and of Kubernetes.
const GRACE: Duration = Duration::from_secs(30);

impl Surroundings {
    /// Detects the surroundings; flags come first.
    pub(crate) fn detect(
        behind: Option<ProxyInFront>,
        grace: Option<Duration>,
        settings: &Settings,
        is_set: impl Fn(&str) -> bool,
    ) -> Surroundings {
        let kubernetes = is_set("KUBERNETES_SERVICE_HOST") || behind == Some(ProxyInFront::Kubernetes);
        let heroku = is_set("DYNO") || behind == Some(ProxyInFront::Heroku);
        let (proxy, because) = match behind {
            Some(proxy) => (proxy, "--behind".to_owned()),
            None if is_set("DYNO") => (ProxyInFront::Heroku, "DYNO is set".to_owned()),
            None if is_set("KUBERNETES_SERVICE_HOST") => {
                (ProxyInFront::Kubernetes, "KUBERNETES_SERVICE_HOST is set".to_owned())
            }
            None if only_local(&settings.binds) => {
                (ProxyInFront::Nginx, "only this machine can connect".to_owned())
            }
            None => (ProxyInFront::Nothing, "no sign of a proxy".to_owned()),
        };
        let grace = match grace {
            Some(grace) => Some((grace, "--grace".to_owned())),
            None if heroku => Some((GRACE, "Heroku".to_owned())),
            None if kubernetes => {
                Some((GRACE, "Kubernetes' default of terminationGracePeriodSeconds".to_owned()))
            }
            None => None,
        };
        let routed_by = ROUTED.into_iter().find(|name| is_set(name));
        Surroundings { proxy, because, grace, kubernetes, routed_by }
    }

    pub(crate) fn is_proxied(&self) -> bool {
        self.proxy != ProxyInFront::Nothing
    }
}

/// Whether only this machine can connect to the addresses.
pub(crate) fn only_local(binds: &[Bind]) -> bool {
    !binds.is_empty() && binds.iter().all(is_local)
}

/// Whether only this machine can connect to the address.
pub(crate) fn is_local(bind: &Bind) -> bool {
    match bind {
        Bind::Unix { .. } => true,
        Bind::Tcp { host, .. } => {
            host.parse::<IpAddr>().map_or(host == "localhost", |address| address.is_loopback())
        }
        Bind::Systemd { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn detected(binds: &[&str], set: &[&str]) -> Surroundings {
        let mut settings = Settings::defaults(Path::new("/srv/app"));
        settings.binds = binds.iter().map(|text| text.parse().unwrap()).collect();
        Surroundings::detect(None, None, &settings, |name| set.contains(&name))
    }

    #[test]
    fn the_surroundings_are_detected() {
        assert_eq!(detected(&["tcp://[::]:9292"], &[]).proxy, ProxyInFront::Nothing);
        assert_eq!(detected(&["tcp://127.0.0.1:9292"], &[]).proxy, ProxyInFront::Nginx);
        assert_eq!(detected(&["unix:///s", "tcp://localhost:1"], &[]).proxy, ProxyInFront::Nginx);
        assert_eq!(detected(&["unix:///s", "tcp://0.0.0.0:1"], &[]).proxy, ProxyInFront::Nothing);
        let heroku = detected(&["tcp://[::]:5000"], &["DYNO"]);
        assert_eq!((heroku.proxy, heroku.routed_by), (ProxyInFront::Heroku, Some("DYNO")));
        assert_eq!(heroku.grace.map(|(time, _)| time), Some(GRACE));
        let pod = detected(&["tcp://[::]:9292"], &["KUBERNETES_SERVICE_HOST"]);
        assert!(pod.kubernetes && pod.grace.is_some() && pod.is_proxied());
    }

    #[test]
    fn flags_come_first() {
        let settings = Settings::defaults(Path::new("/srv/app"));
        let grace = Duration::from_secs(10);
        let told = Surroundings::detect(Some(ProxyInFront::Nothing), Some(grace), &settings, |_| true);
        assert_eq!((told.proxy, told.grace), (ProxyInFront::Nothing, Some((grace, "--grace".to_owned()))));
        for proxy in ProxyInFront::ALL {
            assert_eq!(ProxyInFront::parse(proxy.word()), Ok(proxy));
            assert_eq!(proxy.idle().is_some(), proxy.first_byte().is_some());
        }
        let wrong = ProxyInFront::parse("ngnix").unwrap_err();
        assert!(wrong.starts_with("--behind ngnix: expected one of nginx, alb"), "{wrong}");
    }
}
