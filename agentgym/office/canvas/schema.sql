CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL,
  login_id TEXT NOT NULL UNIQUE COLLATE NOCASE, password TEXT NOT NULL, created_at TEXT NOT NULL,
  last_login TEXT);
CREATE TABLE courses (id INTEGER PRIMARY KEY, account_id INTEGER NOT NULL DEFAULT 1,
  name TEXT NOT NULL, course_code TEXT NOT NULL, sis_course_id TEXT,
  workflow_state TEXT NOT NULL DEFAULT 'available', start_at TEXT, end_at TEXT,
  is_public BOOL NOT NULL DEFAULT 0, time_zone TEXT DEFAULT 'UTC', syllabus_body TEXT,
  extra JSON NOT NULL);
CREATE TABLE enrollments (id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES courses(id),
  user_id INTEGER NOT NULL REFERENCES users(id), type TEXT NOT NULL, enrollment_state TEXT NOT NULL,
  UNIQUE (course_id, type, user_id));
CREATE INDEX enrollments_user ON enrollments(user_id, course_id);
CREATE INDEX enrollments_course ON enrollments(course_id, type, enrollment_state, user_id);
CREATE TABLE assignments (id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES courses(id),
  name TEXT NOT NULL, description TEXT, points_possible REAL, due_at TEXT, unlock_at TEXT,
  lock_at TEXT, submission_types JSON NOT NULL DEFAULT '["online_text_entry"]',
  published BOOL NOT NULL DEFAULT 1, created_at TEXT NOT NULL, updated_at TEXT NOT NULL);
CREATE INDEX assignments_course ON assignments(course_id);
CREATE TABLE submissions (id INTEGER PRIMARY KEY,
  assignment_id INTEGER NOT NULL REFERENCES assignments(id),
  user_id INTEGER NOT NULL REFERENCES users(id),
  submission_type TEXT NOT NULL DEFAULT 'online_text_entry', body TEXT, url TEXT,
  attempt INTEGER NOT NULL DEFAULT 1, submitted_at TEXT NOT NULL, score REAL, grade TEXT,
  grader_id INTEGER, graded_at TEXT, UNIQUE (assignment_id, user_id));
CREATE INDEX submissions_user ON submissions(user_id);
CREATE TABLE topics (id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES courses(id),
  title TEXT NOT NULL, message TEXT NOT NULL, user_id INTEGER REFERENCES users(id),
  posted_at TEXT NOT NULL);
CREATE INDEX topics_course ON topics(course_id);
CREATE TABLE quizzes (id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES courses(id),
  title TEXT NOT NULL, description TEXT, quiz_type TEXT NOT NULL DEFAULT 'assignment',
  time_limit INTEGER, allowed_attempts INTEGER NOT NULL, scoring_policy TEXT NOT NULL,
  points_possible REAL, question_count INTEGER NOT NULL DEFAULT 0, due_at TEXT,
  published BOOL NOT NULL DEFAULT 1);
CREATE INDEX quizzes_course ON quizzes(course_id);
CREATE TABLE quiz_questions (id INTEGER PRIMARY KEY,
  quiz_id INTEGER NOT NULL REFERENCES quizzes(id), question_name TEXT NOT NULL,
  question_type TEXT NOT NULL, question_text TEXT NOT NULL, points_possible REAL,
  answers JSON NOT NULL);
CREATE INDEX questions_quiz ON quiz_questions(quiz_id);
