CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT NOT NULL UNIQUE COLLATE NOCASE,
  name TEXT NOT NULL, password TEXT NOT NULL );
CREATE TABLE folders (user INTEGER NOT NULL REFERENCES users(id), name TEXT NOT NULL COLLATE NOCASE,
  PRIMARY KEY (user, name));
CREATE TABLE messages (id INTEGER PRIMARY KEY, author INTEGER REFERENCES users(id),
  origin TEXT NOT NULL, message_id TEXT NOT NULL, created TEXT NOT NULL, date TEXT NOT NULL,
  sender TEXT NOT NULL,
  "to" TEXT NOT NULL, cc TEXT NOT NULL, bcc TEXT NOT NULL, subject TEXT NOT NULL,
  files INTEGER NOT NULL,
  words TEXT NOT NULL, body TEXT NOT NULL, html TEXT );
CREATE TABLE attachments (id INTEGER PRIMARY KEY,
  message INTEGER NOT NULL REFERENCES messages(id) ON DELETE CASCADE, filename TEXT NOT NULL,
  size INTEGER NOT NULL, data BLOB NOT NULL, UNIQUE (message, filename) );
CREATE TABLE mails (id INTEGER PRIMARY KEY AUTOINCREMENT, user INTEGER NOT NULL,
  folder TEXT NOT NULL COLLATE NOCASE, message INTEGER NOT NULL REFERENCES messages(id),
  at INTEGER NOT NULL, is_read BOOL, is_important BOOL, own BOOL,
  FOREIGN KEY (user, folder) REFERENCES folders(user, name) );
CREATE INDEX mails_in_folder ON mails (user, folder, at, id);
CREATE INDEX mails_of_message ON mails (message);
