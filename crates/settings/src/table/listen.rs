//! Where the server listens, for clients and for its operator.

use super::entry::{Category, entries, long, short};
use crate::kind::lists::Binds;
use crate::kind::numbers::Count;
use crate::kind::texts::{Host, PathOr};

entries! { Category::Listen;
    BIND: Binds = Binds, {
        key: "bind",
        flags: &[short('b', "bind", "URI")],
        default_shown: Some("tcp://HOST:PORT of --host and --port"),
        doc: "Address to listen on; may be repeated",
        more: "tcp://HOST:PORT, tcp://[::1]:3000, unix:///run/app.sock or unix://tmp/app.sock; also HOST:PORT, \
               unix:PATH and /PATH. Behind a ? may stand backlog=1024 and, for Unix sockets, umask=0117 or \
               mode=0660, joined with &. It replaces the default address; a --port next to it adds one more. \
               The variable PORT counts only when no bind is given.",
        known_as: &["listen"],
    }
    PORT: Count = Count { min: 0, max: 65_535 }, {
        key: "port",
        flags: &[short('p', "port", "PORT")],
        env: &["PORT"],
        default: "9292",
        doc: "TCP port; 0 lets the system choose",
    }
    HOST: Host = Host, {
        key: "host",
        flags: &[short('o', "host", "HOST")],
        default: "0.0.0.0",
        doc: "Address for --port",
        known_as: &["hostname", "address", "binding"],
    }
    CONTROL: PathOr = PathOr(&["auto", "off"]), {
        key: "control",
        flags: &[long("control", "PATH|auto|off")],
        default: "auto",
        doc: "Control socket, which answers `firebrick stats`",
        more: "auto is a path made from the app's directory, in $XDG_RUNTIME_DIR/firebrick or else in \
               /tmp/firebrick-UID, that only the same user can open.",
        known_as: &["control_url", "control_app", "activate_control_app", "control_socket"],
    }
}
