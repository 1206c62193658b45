//! Shortens the paths of Ruby files.

/// The folders that are left out at the beginning of paths.
#[derive(Debug, Clone, Default)]
pub struct Folders(Vec<String>);

impl Folders {
    /// The app's folder, by each of its names.
    pub fn new(app: impl IntoIterator<Item = String>) -> Folders {
        let with_slash = |dir: String| format!("{}/", dir.trim_end_matches('/'));
        Folders(app.into_iter().map(with_slash).filter(|dir| dir.len() > 1).collect())
    }

    /// Returns the path relative to the app's folder, or beginning with the gem's name and version.
    pub(crate) fn short<'a>(&self, path: &'a str) -> &'a str {
        let vendored = ["/gems/", "/bundler/gems/"].iter().filter_map(|folder| {
            let at = path.rfind(folder)?;
            let rest = &path[at + folder.len()..];
            // A folder of a gem, not only one of that name.
            rest.split_once('/').filter(|(gem, _)| gem.contains('-')).map(|_| rest)
        });
        if let Some(rest) = vendored.min_by_key(|rest| rest.len()) {
            return rest;
        }
        self.0.iter().find_map(|dir| path.strip_prefix(dir.as_str())).unwrap_or(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_in_the_app_or_with_the_gem() {
        let folders = Folders::new(["/srv/app".to_owned(), "/releases/7/".to_owned()]);
        for (path, short) in [
            ("/srv/app/app/models/post.rb", "app/models/post.rb"),
            ("/releases/7/config.ru", "config.ru"),
            ("/srv/app/vendor/bundle/ruby/3.1.0/gems/rack-2.2.4/lib/rack.rb", "rack-2.2.4/lib/rack.rb"),
            ("/var/lib/gems/3.1.0/bundler/gems/x-0a1b/lib/x.rb", "x-0a1b/lib/x.rb"),
            ("/srv/app/lib/gems/list.rb", "lib/gems/list.rb"),
            ("/srv/application/x.rb", "/srv/application/x.rb"),
            ("/usr/lib/ruby/3.1.0/json/common.rb", "/usr/lib/ruby/3.1.0/json/common.rb"),
            ("(eval)", "(eval)"),
        ] {
            assert_eq!(folders.short(path), short);
        }
    }
}
