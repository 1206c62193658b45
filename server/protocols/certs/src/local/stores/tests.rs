//! Tests the commands for each store, on machines in temporary directories.

use super::testing::{Fake, certutil, lines, listed};
use super::*;

#[test]
fn debian_by_sudo() {
    let fake = Fake::new();
    let folder = fake.folder("/usr/local/share/ca-certificates");
    fake.program("update-ca-certificates", "");
    fake.program("sudo", "exec \"$@\"");
    let wanted = install(&fake.machine, &fake.authority, &[TrustStoreKind::System]).remove(0);
    let id = fake.authority.name().rsplit(' ').next().unwrap();
    let target = folder.join(format!("firebrick-local-authority-1000-{id}.crt"));
    let copy = format!("sudo install -m 0644 {} {}", fake.authority.file().display(), target.display());
    assert_eq!(lines(&wanted), [copy, "sudo update-ca-certificates".to_owned()]);
    fake.run(&wanted);
    assert_eq!(install(&fake.machine, &fake.authority, &[TrustStoreKind::System])[0].need, Need::Nothing);
    // The certificate exists, but the bundle lacks it: an update was interrupted.
    let bundle = fake.folder("/etc/ssl/certs").join("ca-certificates.crt");
    std::fs::write(&bundle, "others").unwrap();
    let again = install(&fake.machine, &fake.authority, &[TrustStoreKind::System]).remove(0);
    assert_eq!(lines(&again), ["sudo update-ca-certificates"]);
    std::fs::copy(fake.authority.file(), &bundle).unwrap();
    assert_eq!(install(&fake.machine, &fake.authority, &[TrustStoreKind::System])[0].need, Need::Nothing);

    std::fs::write(folder.join("firebrick-local-authority-1001-00000000.crt"), "another user's").unwrap();
    let undo = remove(&fake.machine, Some(&fake.authority), &[TrustStoreKind::System]).remove(0);
    let delete = format!("sudo rm -f -- {}", target.display());
    assert_eq!(lines(&undo), [delete, "sudo update-ca-certificates --fresh".to_owned()]);
    fake.run(&undo);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    assert_eq!(
        remove(&fake.machine, Some(&fake.authority), &[TrustStoreKind::System])[0].need,
        Need::Nothing
    );
}

#[test]
fn other_distributions() {
    for (folder, program, update) in [
        ("/etc/pki/ca-trust/source/anchors", "update-ca-trust", "update-ca-trust extract"),
        ("/etc/ca-certificates/trust-source/anchors", "trust", "trust extract-compat"),
        ("/usr/share/pki/trust/anchors", "update-ca-certificates", "update-ca-certificates"),
    ] {
        let mut fake = Fake::new();
        fake.folder(folder);
        fake.program(program, "");
        fake.machine.uid = 0;
        let wanted = install(&fake.machine, &fake.authority, &[TrustStoreKind::System]).remove(0);
        assert!(wanted.name.contains(folder), "{}", wanted.name);
        assert_eq!(lines(&wanted)[1], update);
    }
}

#[test]
fn what_is_missing_is_said() {
    let fake = Fake::new();
    let need = |kind| install(&fake.machine, &fake.authority, &[kind]).remove(0).need;
    let Need::Impossible(why) = need(TrustStoreKind::System) else { panic!("no system is known") };
    assert!(why.contains("ca-certificates"), "{why}");
    let Need::Impossible(why) = need(TrustStoreKind::Chromium) else { panic!("no certutil") };
    assert!(why.contains("libnss3-tools"), "{why}");
    fake.folder("/usr/local/share/ca-certificates");
    fake.program("update-ca-certificates", "");
    let Need::Impossible(why) = need(TrustStoreKind::System) else { panic!("no sudo") };
    assert!(why.contains("as root, run: install -m 0644 "), "{why}");
    assert!(install(&fake.machine, &fake.authority, &[TrustStoreKind::Firefox]).is_empty());
}

#[test]
fn databases_of_chromium_and_firefox() {
    let Some(real) = certutil() else { return };
    let mut fake = Fake::new();
    fake.machine.path = vec![real];
    let profile = fake.machine.home.join(".mozilla/firefox/ab 'cd.default");
    std::fs::create_dir_all(&profile).unwrap();
    let mut made = std::process::Command::new("certutil");
    made.args(["-N", "--empty-password", "-d"]);
    assert!(made.arg(format!("sql:{}", profile.display())).status().unwrap().success());
    let both = [TrustStoreKind::Chromium, TrustStoreKind::Firefox];
    let wanted = install(&fake.machine, &fake.authority, &both);
    let names: Vec<&str> = wanted.iter().map(|store| store.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "Chromium (~/.pki/nssdb)",
            "Chromium (~/.local/share/pki/nssdb)",
            "Firefox (~/.mozilla/firefox/ab 'cd.default)"
        ]
    );
    wanted.iter().for_each(|store| fake.run(store));
    for folder in [fake.machine.home.join(".pki/nssdb"), fake.machine.data.join("pki/nssdb"), profile] {
        let list = listed(&folder);
        assert!(list.contains(fake.authority.name()) && list.contains("C,,"), "{list}");
    }
    let again = install(&fake.machine, &fake.authority, &both);
    assert!(again.iter().all(|store| store.need == Need::Nothing), "{again:?}");
    // An authority that no longer exists is removed as well.
    std::fs::remove_file(fake.authority.file()).unwrap();
    let undo = remove(&fake.machine, None, &both);
    undo.iter().for_each(|store| fake.run(store));
    let clean = remove(&fake.machine, None, &both);
    assert!(clean.iter().all(|store| store.need == Need::Nothing), "{clean:?}");
}

#[test]
fn the_older_database_is_not_made_beside_the_newer_one() {
    let fake = Fake::new();
    std::fs::create_dir_all(fake.machine.data.join("pki/nssdb")).unwrap();
    let names: Vec<String> = nss::chromium(&fake.machine).map(|database| database.address()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(names[0].ends_with(".local/share/pki/nssdb"));
}

#[test]
fn macos_by_its_keychain() {
    let mut fake = Fake::new();
    fake.machine.macos = true;
    let wanted = install(&fake.machine, &fake.authority, &[TrustStoreKind::System, TrustStoreKind::Chromium]);
    assert_eq!(wanted.len(), 1);
    assert!(lines(&wanted[0])[0].starts_with("security add-trusted-cert -r trustRoot -p ssl -k "));
}

#[test]
fn names_are_found_in_lists() {
    let list = "Firebrick local authority 0a1b2c3d       C,,\nFirebrick local authority nothex!!\nother CT,C,C\n\
                \"labl\"=\"Firebrick local authority ffffffff\"\nFirebrick local authority";
    assert_eq!(names_in(list), ["Firebrick local authority 0a1b2c3d", "Firebrick local authority ffffffff"]);
}

#[test]
fn commands_are_shown_as_a_shell_reads_them() {
    assert_eq!(TrustCommand::new(["a", "-n", "b c", "it's", ""]).to_string(), "a -n 'b c' 'it'\\''s' ''");
}
