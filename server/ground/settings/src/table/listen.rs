//! Addresses for clients and for the operator.

use super::entry::{Category, entries, long, short};
use crate::kind::lists::{Binds, ControlAddresses, ControlPart};
use crate::kind::numbers::Count;
use crate::kind::texts::{Host, Secret};
use crate::kind::wrappers::Maybe;
use crate::value::bind::Bind;

entries! { Category::Listen;
    /// Address to listen on; may be repeated
    BIND: Vec<Bind> = Binds, {
        key: "bind",
        flags: &[short('b', "bind", "URI")],
        default_shown: Some("tcp://HOST:PORT of --host and --port"),
        more: "tcp://HOST:PORT, tcp://[::1]:3000, unix:///run/app.sock or unix://tmp/app.sock; also HOST:PORT, \
               unix:PATH and /PATH. systemd means all sockets that systemd passes, systemd?optional=true those that it may pass. Options follow a ? and are joined with &. Both kinds: \
               backlog=1024. Unix sockets: umask=0117 or mode=0660; without them every user of the machine can connect. TCP ports: ipv6only=true \
               leaves IPv4 out of tcp://[::]:PORT; proxy_protocol=v1, v2 or any expects a PROXY header with the client's address at \
               the start of each connection, and accepts connections only from rack.trusted_proxies. A bind replaces the default address; \
               --port adds its address to the binds. The variable PORT is used only if no bind is given.",
        known_as: &["listen"],
    }
    /// TCP port to listen on; 0 lets the system choose
    PORT: u16 = Count { min: 0, max: 65_535 }, {
        key: "port",
        flags: &[short('p', "port", "PORT")],
        env: &["PORT"],
        default: "9292",
    }
    /// Address or host name to listen on with --port
    HOST: String = Host, {
        key: "host",
        flags: &[short('o', "host", "HOST")],
        default: "::",
        default_shown: Some("`::`, all IPv6 and IPv4 addresses; `0.0.0.0` on a machine without IPv6"),
        more: ":: accepts IPv6 and IPv4, 0.0.0.0 accepts IPv4 only. For IPv6 only, write bind = \"tcp://[::]:PORT?ipv6only=true\".",
        known_as: &["hostname", "address", "binding"],
    }
    /// Address of the control server (stats, dashboard); may be repeated
    CONTROL: Vec<ControlPart> = ControlAddresses, {
        key: "control",
        flags: &[long("control", "ADDRESS|auto|off"), long("control-url", "ADDRESS")],
        default: "auto",
        more: "`firebrick stats`, `firebrick top` and the dashboard use it. The address is the path of a Unix socket, or tcp://HOST:PORT, \
               which also serves browsers (/dashboard) and requires control_token; port 0 lets the system choose. auto is a path \
               derived from the app's directory, in $XDG_RUNTIME_DIR/firebrick or else in /tmp/firebrick-UID, that only the same user \
               can open. Ports are added to that path; to have only ports, add off.",
        known_as: &["control_url", "control_app", "activate_control_app", "control_socket"],
    }
    /// Token that clients must send to a control port (tcp://)
    CONTROL_TOKEN: Option<String> = Maybe(Secret), {
        key: "control_token",
        flags: &[long("control-token", "TOKEN"), long("token", "TOKEN")],
        env: &["FIREBRICK_CONTROL_TOKEN"],
        default: "",
        default_shown: Some("generated at each start and printed"),
        more: "Prefer the variable: other users of the machine can see flags. On an address that other machines can reach, \
               the token must have at least 16 characters.",
        secret: true,
        known_as: &["auth_token", "control_auth_token"],
    }
}
