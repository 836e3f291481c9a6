//! Macro for the methods of a file system wrapper that only call the wrapped file system.

#[doc(hidden)]
pub use umbel_base::Result as WrapperResult;

/// Writes methods of a [`FileSystem`](crate::FileSystem) that call the same method of the file
/// system in a field: `delegate_calls!(files: reaches directory_location);` in its `impl` block.
#[macro_export]
macro_rules! delegate_calls {
    ($field:ident: $($method:ident)*) => { $($crate::delegate_calls!(@$method $field);)* };
    (@absolute $field:ident) => {
        fn absolute(
            &self,
            path: &::std::path::Path,
        ) -> $crate::WrapperResult<::std::path::PathBuf> {
            self.$field.absolute(path)
        }
    };
    (@reaches $field:ident) => {
        fn reaches(&self, path: &::std::path::Path) -> bool {
            self.$field.reaches(path)
        }
    };
    (@directory_location $field:ident) => {
        fn directory_location(&self) -> $crate::WrapperResult<$crate::DirectoryLocation> {
            self.$field.directory_location()
        }
    };
    (@is_removed $field:ident) => {
        fn is_removed(&self) -> $crate::WrapperResult<bool> {
            self.$field.is_removed()
        }
    };
    (@check_named $field:ident) => {
        fn check_named(&self, path: &::std::path::Path) -> $crate::WrapperResult<()> {
            self.$field.check_named(path)
        }
    };
    (@identity $field:ident) => {
        fn identity(
            &self,
            path: &::std::path::Path,
        ) -> $crate::WrapperResult<::std::option::Option<$crate::FileIdentity>> {
            self.$field.identity(path)
        }
    };
    (@innermost $field:ident) => {
        fn innermost(&self) -> &dyn ::std::any::Any {
            self.$field.innermost()
        }
    };
    (@create_dir_all $field:ident) => {
        fn create_dir_all(&self, path: &::std::path::Path) -> $crate::WrapperResult<()> {
            self.$field.create_dir_all(path)
        }
    };
    (@rename $field:ident) => {
        fn rename(
            &self,
            source: &::std::path::Path,
            target: &::std::path::Path,
        ) -> $crate::WrapperResult<()> {
            self.$field.rename(source, target)
        }
    };
    (@exchange $field:ident) => {
        fn exchange(
            &self,
            one: &::std::path::Path,
            other: &::std::path::Path,
        ) -> $crate::WrapperResult<bool> {
            self.$field.exchange(one, other)
        }
    };
    (@hard_link $field:ident) => {
        fn hard_link(
            &self,
            source: &::std::path::Path,
            target_files: &dyn $crate::FileSystem,
            target: &::std::path::Path,
        ) -> $crate::WrapperResult<()> {
            self.$field.hard_link(source, target_files, target)
        }
    };
    (@remove_file $field:ident) => {
        fn remove_file(&self, path: &::std::path::Path) -> $crate::WrapperResult<()> {
            self.$field.remove_file(path)
        }
    };
    (@remove_dir $field:ident) => {
        fn remove_dir(&self, path: &::std::path::Path) -> $crate::WrapperResult<()> {
            self.$field.remove_dir(path)
        }
    };
    (@read_dir $field:ident) => {
        fn read_dir(
            &self,
            path: &::std::path::Path,
        ) -> $crate::WrapperResult<::std::vec::Vec<$crate::DirectoryEntry>> {
            self.$field.read_dir(path)
        }
    };
    (@exists $field:ident) => {
        fn exists(&self, path: &::std::path::Path) -> $crate::WrapperResult<bool> {
            self.$field.exists(path)
        }
    };
    (@check_writable $field:ident) => {
        fn check_writable(&self, path: &::std::path::Path) -> $crate::WrapperResult<()> {
            self.$field.check_writable(path)
        }
    };
    (@resolved $field:ident) => {
        fn resolved(&self, path: &::std::path::Path) -> ::std::path::PathBuf {
            self.$field.resolved(path)
        }
    };
    (@sync_dir $field:ident) => {
        fn sync_dir(&self, path: &::std::path::Path) -> $crate::WrapperResult<()> {
            self.$field.sync_dir(path)
        }
    };
    (@lock $field:ident) => {
        fn lock(
            &self,
            path: &::std::path::Path,
        ) -> $crate::WrapperResult<::std::boxed::Box<dyn $crate::Lock>> {
            self.$field.lock(path)
        }
    };
    (@pin $field:ident) => {
        fn pin(
            &self,
            path: &::std::path::Path,
            version: u64,
        ) -> $crate::WrapperResult<::std::option::Option<::std::boxed::Box<dyn $crate::Pin>>> {
            self.$field.pin(path, version)
        }
    };
}
